// Greedy continuations and their logprobs over HTTP, against float64 references, at one and two ranks.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Cluster } from './support.mjs';

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
