// Checkpoints of 8-bit weights, served: every logprob is float64's over the dequantised weights, and the same bits at one
// rank and two, alone and in company, scored and generated (X1). quantised_models.py writes the models as they lie on
// Hugging Face and what NumPy makes of them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { bin, Cluster } from './support.mjs';

const python = process.env.HELIOS_PYTHON ?? '/usr/bin/python3';
const skip = spawnSync(python, ['-c', 'import numpy']).status === 0 ? false : `NOT CHECKED: ${python} has no NumPy`;
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'helios-quantised-'));
after(() => fs.rmSync(folder, { recursive: true }));
if (!skip) {
  const script = new URL('quantised_models.py', import.meta.url).pathname;
  const { status, stderr } = spawnSync(python, [script, folder], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
}

/** The choices of a request, each with its prompt scored and `count` greedy tokens. */
async function ask(cluster, prompt, count) {
  const reply = await cluster.complete({
    prompt, max_tokens: count, temperature: 0, ignore_eos: true, logprobs: 0, echo: true, return_token_ids: true,
  });
  return [...reply.choices].sort((a, b) => a.index - b.index).map((c) => ({ ids: c.token_ids, values: c.logprobs.token_logprobs }));
}

for (const scheme of ['fp8', 'fp8-block', 'fp8-qwen', 'int8']) {
  test(`${scheme}: served logprobs meet float64, the same bits at one and two ranks`, { skip }, async () => {
    const { matrices, prompts } = JSON.parse(fs.readFileSync(path.join(folder, `${scheme}.json`)));
    assert.ok(matrices >= 35, `${matrices} matrices`);
    const count = prompts[0].greedy.ids.length;
    const seen = [];
    for (const nproc of [2, 1]) {
      const cluster = await Cluster.start({ model: path.join(folder, scheme), nproc, args: ['--prompt-logprobs'] });
      try {
        const alone = [];
        for (const { ids } of prompts) alone.push(...(await ask(cluster, ids, count)));
        seen.push(alone, await ask(cluster, prompts.map((p) => p.ids), count));
      } finally {
        await cluster.stop();
      }
    }
    for (const other of seen.slice(1)) assert.deepEqual(other, seen[0]);
    let worst = 0, checked = 0;
    for (const [i, { ids, logprobs, greedy }] of prompts.entries()) {
      const { values } = seen[0][i];
      const generated = seen[0][i].ids.slice(-count);
      assert.equal(values.length, ids.length + count);
      const expect = (at, value) => {
        worst = Math.max(worst, Math.abs(values[at] - value));
        ++checked;
      };
      logprobs.forEach((value, k) => expect(k + 1, value));
      for (let k = 0; k < count && greedy.leads[k] > 1e-3; ++k) {
        assert.equal(generated[k], greedy.ids[k], `prompt ${i} token ${k}`);
        expect(ids.length + k, greedy.logprobs[k]);
      }
    }
    assert.ok(checked > 200, `${checked} positions`);
    assert.ok(worst <= 1e-4, `worst difference ${worst}`);
    console.log(`# ${scheme}: ${checked} positions, worst difference ${worst.toExponential(1)}`);
  });
}

test('a scheme that is not read stops the launch with its field and value', { skip }, async () => {
  const model = path.join(folder, 'refused');
  fs.cpSync(path.join(folder, 'int8'), model, { recursive: true });
  const file = path.join(model, 'config.json');
  const config = JSON.parse(fs.readFileSync(file));
  config.quantization_config.config_groups.group_0.weights.num_bits = 4;
  fs.writeFileSync(file, JSON.stringify(config));
  const { status, stderr } = spawnSync(`${bin}/helios-launch`, ['--model', model, '--port', '0'], { encoding: 'utf8', timeout: 30_000 });
  assert.notEqual(status, 0);
  assert.match(stderr, /weights: num_bits: expected 8, found 4/);
});
