// An evaluation run, asked for as lm-evaluation-harness asks and read as it reads: every item's choice must be the one
// that float64 arithmetic makes (R38, R40, R46; wire formats, section 7).
//
// evaluation_items.py wrote the items of the demo model; those of another checkpoint are cut from its golden values.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Cluster, demo } from './support.mjs';

const perToken = 5e-5;  // nats that a token's value may be off: FP32 on an 8-bit mantissa's weights, worst seen 1.8e-5
const batchSize = 16, atOnce = 3;

/** Maps `list` through `work`, some at a time, in order. */
async function mapped(list, work, width) {
  const out = new Array(list.length);
  let next = 0;
  const worker = async () => {
    for (let i; (i = next++) < list.length;) out[i] = await work(list[i], i);
  };
  await Promise.all(Array.from({ length: width }, worker));
  return out;
}

/** The harness' API model, as far as it talks to a server. */
class Harness {
  constructor(cluster, model) {
    Object.assign(this, { cluster, model, known: new Map() });
  }
  async encode(text) {
    if (!this.known.has(text)) {
      this.known.set(text, this.cluster.post('/tokenize', { prompt: text, add_special_tokens: false }).then((reply) => reply.json().tokens));
    }
    return this.known.get(text);
  }
  /** Context and continuation are encoded together, and cut where the context alone ends. */
  async pair(context, continuation) {
    const spaces = context.length - context.trimEnd().length;
    if (spaces > 0) [context, continuation] = [context.slice(0, -spaces), context.slice(-spaces) + continuation];
    const [whole, begin] = await Promise.all([this.encode(context + continuation), this.encode(context)]);
    return { ids: whole, contextLength: begin.length };
  }
  /** [sum, greedy] of each pair; the longest go first, in batches. */
  async loglikelihood(pairs, extra = {}) {
    const order = pairs.map((_, i) => i).sort((a, b) => pairs[b].ids.length - pairs[a].ids.length);
    const batches = [];
    for (let i = 0; i < order.length; i += batchSize) batches.push(order.slice(i, i + batchSize));
    const results = new Array(pairs.length);
    await mapped(batches, async (batch) => {
      const reply = await this.cluster.complete({
        model: this.model, prompt: batch.map((i) => pairs[i].ids), temperature: 0, max_tokens: 1, logprobs: 1, seed: 1234, echo: true, ...extra,
      });
      for (const choice of [...reply.choices].sort((a, b) => a.index - b.index)) {
        const pair = pairs[batch[choice.index]];
        const { token_logprobs, top_logprobs } = choice.logprobs;
        const end = (extra.max_tokens ?? 1) > 0 ? -1 : undefined;
        const values = token_logprobs.slice(pair.contextLength, end);
        assert.equal(values.length, pair.ids.length - pair.contextLength);
        const greedy = top_logprobs.slice(pair.contextLength, end).every((top, k) => values[k] === Math.max(...Object.values(top)));
        results[batch[choice.index]] = [values.reduce((a, b) => a + b, 0), greedy];
      }
    }, atOnce);
    return results;
  }
}

const best = (values) => values.indexOf(Math.max(...values));
const margin = (values) => {
  const [first, second] = [...values].sort((a, b) => b - a);
  return first - second;
};

/** Holds an item's sums against the reference's; returns the largest difference a token. */
function judge(what, sums, references, lengths, seen) {
  sums.forEach((sum, i) => {
    const off = Math.abs(sum - references[i]) / lengths[i];
    assert.ok(off <= perToken, `${what}, choice ${i}: ${sum}, the reference has ${references[i]}`);
    seen.worst = Math.max(seen.worst, off);
  });
  // Both of the harness' accuracies: the likeliest choice, and the likeliest for its length.
  for (const scale of [() => 1, (i) => lengths[i]]) {
    const ours = sums.map((sum, i) => sum / scale(i)), theirs = references.map((sum, i) => sum / scale(i));
    if (margin(theirs) <= 2 * perToken * Math.max(...lengths.map((n, i) => n / scale(i)))) {
      seen.near += 1;
      continue;
    }
    assert.equal(best(ours), best(theirs), `${what}: ${ours}, the reference has ${theirs}`);
    seen.judged += 1;
  }
}
const report = (name, seen) => console.log(`# ${name}: ${seen.judged} choices as in float64, ${seen.near} too near to judge, worst difference ${seen.worst.toExponential(1)} a token`);

test('multiple choice on the demo model: the choices of float64', async () => {
  const [{ model }, ...lines] = fs.readFileSync(new URL('evaluation.jsonl', import.meta.url), 'utf8').trim().split('\n').map(JSON.parse);
  const weights = fs.readFileSync(path.join(demo, 'model.safetensors'));
  assert.equal(crypto.createHash('sha256').update(weights).digest('hex'), model,
    'evaluation.jsonl is of another model: run python3 tests/cluster/openai/evaluation_items.py');
  const items = lines.filter((line) => line.choices), texts = lines.filter((line) => line.text);
  const cluster = await Cluster.start({ args: ['--prompt-logprobs'] });
  try {
    const harness = new Harness(cluster, 'demo');
    const pairs = await mapped(items.flatMap(({ context, choices }) => choices.map((choice) => [context, choice])),
      ([context, choice]) => harness.pair(context, choice), 8);
    const results = await harness.loglikelihood(pairs);
    const seen = { worst: 0, judged: 0, near: 0 };
    let at = 0;
    for (const { context, choices, sums, greedy } of items) {
      const mine = results.slice(at, at + choices.length), lengths = pairs.slice(at, (at += choices.length)).map((p) => p.ids.length - p.contextLength);
      judge(JSON.stringify(context), mine.map(([sum]) => sum), sums, lengths, seen);
      mine.forEach(([, isGreedy], i) => greedy[i] === '?' || assert.equal(isGreedy, greedy[i] === '1', `${context}${choices[i]}`));
    }
    assert.ok(seen.judged > 400, `${seen.judged} choices`);
    // Without a budget nothing is generated, and the scores are the same bits.
    const again = await harness.loglikelihood(pairs.slice(0, 64), { max_tokens: 0 });
    assert.deepEqual(again, results.slice(0, 64));  // X1
    // Whole texts: every token behind the first.
    const whole = await mapped(texts, async ({ text }) => ({ ids: await harness.encode(text), contextLength: 1 }), 4);
    (await harness.loglikelihood(whole)).forEach(([sum], i) => {
      const off = Math.abs(sum - texts[i].sum) / (whole[i].ids.length - 1);
      assert.ok(off <= perToken, `${texts[i].text}: ${sum}, the reference has ${texts[i].sum}`);
    });
    report('demo', seen);
  } finally {
    await cluster.stop();
  }
});

const data = process.env.HELIOS_TEST_DATA;
const skip = data && fs.existsSync(path.join(data, 'golden')) ? false : 'NOT CHECKED: set HELIOS_TEST_DATA to the reference data';

test('multiple choice on stories260k: the choices of float64', { skip }, async () => {
  const { prompts } = JSON.parse(fs.readFileSync(path.join(data, 'golden/stories260k/f32.json')));
  const items = [];
  for (const { ids, prompt_logprobs } of prompts) {
    for (let i = 1; i < ids.length; i += 6) {  // the token that follows, and the three likeliest others
      const { token, logprob, top } = prompt_logprobs[i];
      const others = top.filter(([id]) => id !== token).slice(0, 3);
      items.push({ context: ids.slice(0, i), choices: [[token, logprob], ...others] });
    }
  }
  const cluster = await Cluster.start({ model: path.join(data, 'models/stories260k/f32'), args: ['--prompt-logprobs'] });
  try {
    const harness = new Harness(cluster, 'f32');
    const pairs = items.flatMap(({ context, choices }) => choices.map(([id]) => ({ ids: [...context, id], contextLength: context.length })));
    const results = await harness.loglikelihood(pairs);
    const seen = { worst: 0, judged: 0, near: 0 };
    let at = 0;
    for (const { context, choices } of items) {
      const mine = results.slice(at, (at += choices.length));
      judge(`[${context}]`, mine.map(([sum]) => sum), choices.map(([, value]) => value), choices.map(() => 1), seen);
    }
    assert.ok(seen.judged > 200, `${seen.judged} choices`);
    const whole = prompts.filter(({ ids }) => ids.length > 1);
    const sums = await harness.loglikelihood(whole.map(({ ids }) => ({ ids, contextLength: 1 })));
    sums.forEach(([sum], i) => {
      const reference = whole[i].prompt_logprobs.slice(1).reduce((total, { logprob }) => total + logprob, 0);
      assert.ok(Math.abs(sum - reference) <= perToken * whole[i].ids.length, `${whole[i].id}: ${sum}, the reference has ${reference}`);
    });
    report('stories260k', seen);
  } finally {
    await cluster.stop();
  }
});
