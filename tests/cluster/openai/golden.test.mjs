// Greedy continuations and their logprobs over HTTP, against float64 references, at one and two ranks.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { bin, Cluster } from './support.mjs';

const data = process.env.HELIOS_TEST_DATA;
const skip = data && fs.existsSync(path.join(data, 'golden')) ? false : 'NOT CHECKED: set HELIOS_TEST_DATA to the reference data';

const models = ['stories260k/f32', 'stories260k/bf16-sharded', 'tiny-random/llama-gqa-bf16', 'tiny-random/qwen2-bias-f32',
  'tiny-random/qwen3-qknorm-bf16', 'tiny-random/mistral-window-f16', 'tiny-random/llama3-rope-bias-f32'];

for (const name of models) {
  test(`${name}: greedy ids and logprobs`, { skip }, async () => {
    const golden = JSON.parse(fs.readFileSync(path.join(data, 'golden', `${name.replace('-sharded', '')}.json`)));
    const cluster = await Cluster.start({ model: path.join(data, 'models', name), nproc: 2, args: ['--dtype', 'float32'] });
    try {
      let worst = 0, checked = 0;
      for (const prompt of golden.prompts) {
        const { ids, logprobs, leads } = prompt.greedy;
        const room = Math.min(ids.length, 512 - prompt.ids.length);
        if (room < 1) continue;
        const reply = await cluster.complete({
          prompt: prompt.ids, max_tokens: room, temperature: 0, ignore_eos: true, logprobs: 0, return_token_ids: true,
        });
        const [choice] = reply.choices;
        for (let i = 0; i < room && leads[i] > 1e-3; ++i) {
          assert.equal(choice.token_ids[i], ids[i], `${prompt.id} token ${i}`);
          worst = Math.max(worst, Math.abs(choice.logprobs.token_logprobs[i] - logprobs[i]));
          ++checked;
        }
      }
      assert.ok(checked > 100, `${checked} positions`);
      assert.ok(worst <= 1e-4, `worst difference ${worst}`);
      console.log(`# ${name}: ${checked} positions, worst difference ${worst.toExponential(1)}`);
    } finally {
      await cluster.stop();
    }
  });
}

test('--dtype float16: near float64, the same bits at one and two ranks', { skip }, async () => {
  const golden = JSON.parse(fs.readFileSync(path.join(data, 'golden/stories260k/f32.json')));
  const seen = {};
  for (const [name, nproc, dtype] of [['two', 2, 'float16'], ['one', 1, 'float16'], ['exact', 1, 'float32']]) {
    const cluster = await Cluster.start({ model: path.join(data, 'models/stories260k/f32'), nproc, args: ['--dtype', dtype] });
    try {
      const reply = await cluster.complete({
        prompt: golden.prompts.map((p) => p.ids), max_tokens: 8, temperature: 0, ignore_eos: true, logprobs: 5, return_token_ids: true,
      });
      seen[name] = [...reply.choices].sort((a, b) => a.index - b.index).map((c) => ({ ids: c.token_ids, logprobs: c.logprobs }));
    } finally {
      await cluster.stop();
    }
  }
  assert.deepEqual(seen.one, seen.two);
  let worst = 0, checked = 0;
  for (const [i, { greedy }] of golden.prompts.entries()) {
    for (let t = 0; t < 8 && greedy.leads[t] > 0.5 / 4; ++t, ++checked) {
      assert.equal(seen.one[i].ids[t], greedy.ids[t], `prompt ${i} token ${t}`);
      worst = Math.max(worst, Math.abs(seen.one[i].logprobs.token_logprobs[t] - greedy.logprobs[t]));
    }
  }
  assert.ok(checked > 20, `${checked} positions`);
  assert.ok(worst <= 0.5 / 8, `worst difference ${worst}`);
  assert.notDeepEqual(seen.one.map((c) => c.logprobs.token_logprobs), seen.exact.map((c) => c.logprobs.token_logprobs), 'nothing was rounded');
  console.log(`# float16: ${checked} positions, worst difference ${worst.toExponential(1)}`);
});

test('--dtype float16: an input beyond F16 fails its request, a weight beyond it the start', { skip }, async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'helios-f16-'));
  const from = path.join(data, 'models/stories260k/f32');
  const changed = (tensor, value) => {
    for (const file of fs.readdirSync(from)) fs.copyFileSync(path.join(from, file), path.join(folder, file));
    const file = path.join(folder, 'model.safetensors');
    fs.chmodSync(file, 0o644);
    const bytes = fs.readFileSync(file);
    const header = Number(bytes.readBigUInt64LE(0));
    bytes.writeFloatLE(value, 8 + header + JSON.parse(bytes.toString('utf8', 8, 8 + header))[tensor].data_offsets[0]);
    fs.writeFileSync(file, bytes);
  };
  try {
    changed('model.norm.weight', 1e9);
    const cluster = await Cluster.start({ model: folder, nproc: 2, args: ['--dtype', 'float16'] });
    try {
      for (let i = 0; i < 2; ++i) {
        const reply = await cluster.post('/v1/completions', { prompt: [1, 2, 3], max_tokens: 4, logprobs: 1 });
        assert.equal(reply.status, 500);
        assert.match(reply.json().error.message, /the device reports an error/);
        assert.equal((await cluster.health()).status, 200);
      }
    } finally {
      await cluster.stop();
    }
    const tensor = 'model.layers.0.self_attn.q_proj.weight';
    changed(tensor, 70000);
    const { status, stderr } = spawnSync(`${bin}/helios-launch`, ['--model', folder, '--port', '0', '--dtype', 'float16'], { encoding: 'utf8', timeout: 30_000 });
    assert.notEqual(status, 0);
    assert.match(stderr, new RegExp(`--dtype float16: tensor ${tensor}: 70000 at \\[0, 0\\] does not fit F16`));
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
});
