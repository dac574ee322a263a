// Scored prompts over HTTP on real ranks: what evaluation harnesses send, float64 references of every position, and the
// same bits whether a token was generated or scored (R38 to R47, X1).
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Cluster, events, eventually, join } from './support.mjs';

let cluster;
before(async () => {
  cluster = await Cluster.start({ args: ['--prompt-logprobs', '--prefill-chunk', '256'] });
});
after(async () => {
  if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

const data = process.env.HELIOS_TEST_DATA;
const skip = data && fs.existsSync(path.join(data, 'golden')) ? false : 'NOT CHECKED: set HELIOS_TEST_DATA to the reference data';
const harbour = 'The harbour lights were red and the tide was';
const odd = 'café 🧎🏽‍♀️ 龘靐齉𠮷野家 naïve 👨‍👩‍👧 ไทย';
const chat = (question) => `<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n`;
const common = 'the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which'.split(' ');
const words = (n) => Array.from({ length: n }, (_, i) => common[(i * 7 + (i >> 3)) % common.length]).join(' ');

const ids = async (prompt) => (await cluster.post('/tokenize', { prompt })).json().tokens;
/** What lm-evaluation-harness sends: always lists of ids, also for one prompt. */
const harness = (prompt, extra = {}) =>
  cluster.complete({ model: 'demo', prompt, temperature: 0, max_tokens: 1, logprobs: 1, seed: 1234, echo: true, ...extra });
async function streamed(body) {
  const reply = await cluster.post('/v1/completions', { ...body, stream: true });
  assert.equal(reply.status, 200, reply.text);
  const all = events(reply.text);
  assert.equal(all.at(-1), '[DONE]');
  return { chunks: all.slice(0, -1), choices: join(all.slice(0, -1)) };
}
function checkEchoed({ logprobs }, promptTokens, generated) {
  const { tokens, token_logprobs, top_logprobs, text_offset } = logprobs;
  for (const list of [tokens, token_logprobs, top_logprobs, text_offset]) assert.equal(list.length, promptTokens + generated);
  assert.equal(token_logprobs[0], null);
  assert.equal(top_logprobs[0], null);
  for (let i = 1; i < tokens.length; ++i) {
    assert.ok(Number.isFinite(token_logprobs[i]) && token_logprobs[i] <= 0 && token_logprobs[i] >= -9999);
    assert.ok(Object.values(top_logprobs[i]).length >= 1);
    assert.ok(Math.max(...Object.values(top_logprobs[i])) >= token_logprobs[i]);
    assert.ok(text_offset[i] >= text_offset[i - 1]);
  }
}

test('likelihoods as lm-evaluation-harness asks for them', async () => {
  const prompts = [];
  for (const text of ['The capital of Norway is Oslo', harbour, 'Yes', 'A gull, a gate, a grey slate roof.']) prompts.push(await ids(text));
  prompts.push(prompts[1].slice(0, 1));  // one token
  const reply = await harness(prompts);
  assert.deepEqual(reply.choices.map((c) => c.index), prompts.map((_, i) => i));
  assert.equal(reply.usage.prompt_tokens, prompts.flat().length);
  assert.equal(reply.usage.completion_tokens, prompts.length);
  for (const [i, choice] of reply.choices.entries()) {
    checkEchoed(choice, prompts[i].length, 1);
    const alone = await harness([prompts[i]]);
    assert.deepEqual(alone.choices[0].logprobs, choice.logprobs, 'company changes nothing');  // X1
  }
});

test('the greedy token after an answer is EOS: the arrays still have one generated entry', async () => {
  const prompt = await ids(chat('What is the capital of France?') + 'The capital of France is Paris.');
  const { choices, usage } = await harness([prompt]);
  const [choice] = choices;
  checkEchoed(choice, prompt.length, 1);
  assert.equal(choice.finish_reason, 'stop');
  assert.ok(choice.text.endsWith('is Paris.'));
  assert.equal(choice.logprobs.text_offset.at(-1), [...choice.text].length);
  assert.match(choice.logprobs.tokens.at(-1), /^<\|.*\|>$/);
  assert.equal(usage.completion_tokens, 1);
  // The likely answer beats an unlikely one, and is greedy all along.
  const question = await ids(chat('What is the capital of France?'));
  const continuations = await Promise.all([' Paris.', ' second.'].map((end) => ids('The capital of France is' + end)));
  const scores = (await harness(continuations.map((c) => [...question, ...c]))).choices.map((c) => {
    const values = c.logprobs.token_logprobs.slice(question.length, -1);
    const greedy = values.every((v, k) => v === Math.max(...Object.values(c.logprobs.top_logprobs[question.length + k])));
    return { sum: values.reduce((a, b) => a + b), greedy };
  });
  assert.ok(scores[0].greedy && !scores[1].greedy, JSON.stringify(scores));
  assert.ok(scores[0].sum > scores[1].sum + 1);
});

test('without a budget nothing is generated', async () => {  // R38
  const prompt = await ids('Is tea hot? Yes');
  const a = await harness([prompt], { max_tokens: 0 });
  checkEchoed(a.choices[0], prompt.length, 0);
  assert.equal(a.choices[0].text, 'Is tea hot? Yes');
  assert.equal(a.choices[0].finish_reason, 'length');
  assert.equal(a.usage.completion_tokens, 0);
  const b = await cluster.complete({ prompt: 'Is tea hot? Yes', max_tokens: 0, prompt_logprobs: 1 });
  assert.equal(b.choices[0].text, '');
  assert.equal(b.choices[0].logprobs, null);
  assert.equal(b.choices[0].prompt_logprobs.length, prompt.length);
  const c = await cluster.complete({ prompt: 'Is tea hot? Yes', max_tokens: 0, echo: true });
  assert.deepEqual([c.choices[0].text, c.choices[0].logprobs, c.choices[0].prompt_logprobs], ['Is tea hot? Yes', null, null]);
  const one = await cluster.complete({ prompt: prompt.slice(0, 1), max_tokens: 0, echo: true, logprobs: 3, prompt_logprobs: 2 });
  assert.deepEqual(one.choices[0].prompt_logprobs, [null]);
  checkEchoed(one.choices[0], 1, 0);
});

test('what was generated has the same bits when it is scored', async () => {  // X1
  for (const [prompt, extra] of [[words(300), { temperature: 1, seed: 5 }], [odd, { temperature: 1.3, seed: 6 }], [harbour, { temperature: 0 }]]) {
    const made = (await cluster.complete({
      prompt, max_tokens: 120, ignore_eos: true, logprobs: 20, return_token_ids: true, return_tokens_as_token_ids: true, ...extra,
    })).choices[0];
    const all = [...made.prompt_token_ids, ...made.token_ids];
    const [scored] = (await cluster.complete({
      prompt: all, max_tokens: 0, echo: true, logprobs: 20, prompt_logprobs: 20, return_tokens_as_token_ids: true,
    })).choices;
    const from = made.prompt_token_ids.length;
    assert.deepEqual(scored.logprobs.token_logprobs.slice(from), made.logprobs.token_logprobs);
    assert.deepEqual(scored.logprobs.top_logprobs.slice(from), made.logprobs.top_logprobs);
    for (let i = 1; i < all.length; ++i) {
      const entry = scored.prompt_logprobs[i][all[i]];
      assert.equal(entry.logprob, scored.logprobs.token_logprobs[i]);
      const values = Object.values(scored.prompt_logprobs[i]).map((v) => v.logprob);
      if (entry.rank <= 20) assert.equal(entry.rank, 1 + values.filter((v) => v > entry.logprob).length);
      else assert.equal(values.length, 21);
    }
  }
});

/** Every position of a reference's prompts; its `top` lists are compared where it has them. */
async function againstReference(cluster, prompts) {
  let worst = 0, checked = 0, worstRank = 0;
  for (const { name, token_ids, positions } of prompts) {
    const { choices } = await cluster.complete({ prompt: token_ids, max_tokens: 0, prompt_logprobs: 20 });
    const list = choices[0].prompt_logprobs;
    assert.equal(list.length, token_ids.length, name);
    assert.equal(list[0], null);
    for (let i = 1; i < list.length; ++i) {
      const { token, logprob, rank, top } = positions[i];
      const at = `${name} position ${i}`;
      assert.equal(token, token_ids[i], at);
      const difference = Math.abs(list[i][token].logprob - logprob);
      worst = Math.max(worst, difference);
      worstRank = Math.max(worstRank, Math.abs(list[i][token].rank - rank));
      const ranked = Object.entries(list[i]).map(([id, v]) => ({ id: Number(id), ...v })).filter((v) => v.id !== token || v.rank <= 20);
      ranked.sort((a, b) => b.logprob - a.logprob || a.id - b.id);
      top?.forEach(([id, value], k) => {
        worst = Math.max(worst, Math.abs(ranked[k].logprob - value));
        if (ranked[k].id !== id) {  // only where the reference has a near tie
          const other = top.find((t) => t[0] === ranked[k].id) ?? top.at(-1);
          assert.ok(Math.abs(other[1] - value) < 1e-4, `${at}: alternative ${k} is ${ranked[k].id}, expected ${id}`);
        }
      });
      ++checked;
    }
  }
  assert.ok(checked > 1400, `${checked} positions`);
  assert.ok(worst <= 1e-4, `worst difference ${worst}`);
  assert.ok(worstRank <= 1, `a rank is off by ${worstRank}`);
  console.log(`# ${checked} positions, worst difference ${worst.toExponential(1)}`);
}

test('every position of the bundled model against float64', async () => {
  const golden = new URL('../../../deploy/demo/training/golden.json', import.meta.url);
  await againstReference(cluster, JSON.parse(fs.readFileSync(golden)).prompts);
});

test('every position and its twenty best against float64', { skip }, async () => {
  const golden = JSON.parse(fs.readFileSync(path.join(data, 'golden/helios-demo/logprobs.json')));
  const args = ['--prompt-logprobs', '--prefill-chunk', '256'];
  const reference = await Cluster.start({ model: path.join(data, 'models/helios-demo'), args });
  try {
    await againstReference(reference, golden.prompts);
  } finally {
    await reference.stop();
  }
});

test('prompt_logprobs: keys, ranks, texts', async () => {  // R46
  const prompt = 'Three reasons to keep bees: first, honey, second, pollination, third,';
  for (const n of [0, 1, 2, 20]) {
    const { choices, usage } = await cluster.complete({ prompt, max_tokens: 1, prompt_logprobs: n, return_token_ids: true });
    const [{ prompt_logprobs: list, prompt_token_ids: tokens, logprobs }] = choices;
    assert.equal(logprobs, null);
    assert.equal(list.length, usage.prompt_tokens);
    let text = '';
    list.forEach((entry, i) => {
      if (i === 0) return assert.equal(entry, null);
      const actual = entry[tokens[i]];
      const others = Object.entries(entry).filter(([id]) => Number(id) !== tokens[i]).map(([, v]) => v);
      assert.equal(Object.keys(entry).length, actual.rank <= n ? n : n + 1);
      assert.equal(new Set(others.map((v) => v.rank)).size, others.length);
      for (const v of others) assert.ok(v.rank >= 1 && v.rank <= n && v.logprob <= 0);
      if (actual.rank === 1) assert.ok(others.every((v) => v.logprob <= actual.logprob));
      text += actual.decoded_token;
    });
    assert.ok(prompt.endsWith(text), text);
  }
});

test('both lists in one reply, each with its own number of alternatives', async () => {
  const body = { prompt: harbour, max_tokens: 3, temperature: 0, echo: true };
  const both = (await cluster.complete({ ...body, logprobs: 1, prompt_logprobs: 4 })).choices[0];
  const echoed = (await cluster.complete({ ...body, logprobs: 1 })).choices[0];
  const listed = (await cluster.complete({ ...body, prompt_logprobs: 4 })).choices[0];
  assert.deepEqual(both.logprobs, echoed.logprobs);
  assert.deepEqual(both.prompt_logprobs, listed.prompt_logprobs);
  assert.deepEqual([echoed.prompt_logprobs, listed.logprobs], [null, null]);
});

test('selected ids are for generated tokens; prompt positions keep natural alternatives', async () => {
  const prompt = await ids(harbour);
  const selected = [1500, 3, 17];
  const [{ logprobs }] = (await cluster.complete({
    prompt, max_tokens: 2, temperature: 0, echo: true, logprobs: 2, logprob_token_ids: selected, return_tokens_as_token_ids: true,
  })).choices;
  logprobs.top_logprobs.slice(1, prompt.length).forEach((top) => {
    const values = Object.values(top);
    assert.ok(values.length <= 3);
    assert.deepEqual(values, [...values].sort((a, b) => b - a));
  });
  logprobs.top_logprobs.slice(prompt.length).forEach((top) =>
    assert.deepEqual(Object.keys(top).slice(0, 3), selected.map((id) => `token_id:${id}`)));
});

test('echoed tokens spell the prompt; offsets point into the text', async () => {
  for (const prompt of ['\n7) Six jars.\n\n\n8)   Two  lids, 40 corks.\t', odd, harbour]) {
    const [choice] = (await cluster.complete({ prompt, max_tokens: 8, temperature: 0, echo: true, logprobs: 1 })).choices;
    const { tokens, text_offset } = choice.logprobs;
    assert.ok(choice.text.startsWith(prompt));
    const size = (await ids(prompt)).length;
    assert.equal(tokens.slice(0, size).join(''), prompt);
    assert.equal(text_offset[size], [...prompt].length, 'the first generated token starts where the prompt ends');
    const points = [...choice.text];
    text_offset.forEach((offset, i) => {
      if (tokens[i] === '' || /[\ufffd]|^<\|/.test(tokens[i])) return;
      assert.equal(points.slice(offset, offset + [...tokens[i]].length).join(''), tokens[i], `token ${i}`);
    });
  }
});

test('a stream of several chunks equals the plain reply, prompt before tokens', async () => {  // R40
  for (const [prompt, extra] of [[words(900), {}], [harbour, { max_tokens: 20 }], [[words(300), odd], { n: 2, seed: 3, temperature: 1 }], [harbour, { max_tokens: 0 }]]) {
    const body = { prompt, max_tokens: 3, temperature: 0, echo: true, logprobs: 1, ...extra };
    const plain = await cluster.complete(body);
    const { chunks, choices } = await streamed(body);
    plain.choices.forEach(({ text, logprobs, finish_reason, stop_reason }, i) =>
      assert.deepEqual(choices[i], { text, logprobs, finish_reason, stop_reason }));
    assert.ok(chunks.every((c) => c.choices.every((choice) => choice.logprobs?.tokens.length !== 0)));
    if (extra.max_tokens === 0) assert.equal(chunks.length, 1);
    else if (!extra.n && prompt === harbour) assert.equal(chunks.length, 20, 'the prompt rides in the first chunk');
  }
});

test('prompt_logprobs when streaming: refused, or nothing for 0', async () => {
  const body = { prompt: harbour, max_tokens: 2, stream: true };
  const refused = await cluster.post('/v1/completions', { ...body, prompt_logprobs: 1 });
  assert.deepEqual([refused.status, refused.json().error.param], [400, 'prompt_logprobs']);
  const { chunks } = await streamed({ ...body, prompt_logprobs: 0 });
  assert.equal(chunks.length, 2);
});

test('the openai client reads the extensions', async () => {
  const client = new OpenAI({ baseURL: cluster.url + '/v1', apiKey: 'none', maxRetries: 0 });
  const [card] = (await client.models.list()).data;
  assert.equal(card.logprobs.prompt, true);
  const { choices } = await client.completions.create({ model: 'demo', prompt: harbour, max_tokens: 1, echo: true, logprobs: 2 });
  assert.equal(choices[0].logprobs.token_logprobs[0], null);
  assert.equal(choices[0].prompt_logprobs, null);
});

test('a prefix scores alike in every prompt; a shuffled sentence scores lower', async () => {  // C030
  const score = async (prompt) => (await cluster.complete({ prompt, max_tokens: 0, echo: true, logprobs: 2 })).choices[0].logprobs;
  const a = await score('Ships carry grain, wool and iron');
  const b = await score('Ships carry grain, wool and iron from the north; in summer they return');
  const c = await score('return they summer in; north the from iron and wool, grain carry Ships');
  const whole = a.tokens.length;
  assert.deepEqual(a.token_logprobs, b.token_logprobs.slice(0, whole));
  assert.deepEqual(a.top_logprobs, b.top_logprobs.slice(0, whole));
  const sum = (l) => l.token_logprobs.slice(1).reduce((x, y) => x + y);
  assert.ok(sum(c) < sum(b));
});

test('cached prefixes are passed by, and usage says so', async () => {  // R43
  const prompt = words(200);
  await cluster.complete({ prompt, max_tokens: 1 });
  const first = (await cluster.complete({ prompt, max_tokens: 1, prompt_logprobs: 2 })).choices[0].prompt_logprobs;
  const longer = (await cluster.complete({ prompt: prompt + ' and then', max_tokens: 1, prompt_logprobs: 2 })).choices[0].prompt_logprobs;
  assert.deepEqual(longer.slice(0, first.length - 1), first.slice(0, -1));
  assert.ok(longer.slice(1).every((entry) => entry !== null));
});

test('scored, silent, selecting and streamed requests together give what each gives alone', async () => {  // X1
  const scored = { prompt: words(400), max_tokens: 4, temperature: 0, ignore_eos: true, prompt_logprobs: 3 };
  const named = { prompt: harbour, max_tokens: 40, temperature: 1, seed: 9, ignore_eos: true, logprobs: 20 };
  const alone = [(await cluster.complete(scored)).choices, (await cluster.complete(named)).choices];
  const rounds = await Promise.all(Array.from({ length: 12 }, async (_, i) => {
    if (i % 3 === 0) return [0, (await cluster.complete(scored)).choices];
    if (i % 3 === 1) return [1, (await cluster.complete(named)).choices];
    const { choices } = await streamed({ ...named, echo: false });
    return [2, choices];
  }));
  for (const [kind, choices] of rounds) {
    if (kind < 2) assert.deepEqual(choices, alone[kind]);
    else assert.deepEqual(choices[0].logprobs, alone[1][0].logprobs);
  }
});

test('one rank, other chunks, cache for two of eight: the same bits, each position once', async () => {  // X1, R43
  const prompts = await Promise.all([words(350), odd, harbour, words(120) + ' north'].map(ids));
  const body = (prompt) => ({ prompt, max_tokens: 160, temperature: 0, ignore_eos: true, echo: true, logprobs: 20, prompt_logprobs: 5 });
  const expected = [];
  for (const prompt of prompts) expected.push((await cluster.complete(body(prompt))).choices[0]);
  const other = await Cluster.start({
    nproc: 1,
    args: ['--prompt-logprobs', '--prefill-chunk', '48', '--max-model-len', '768', '--kv-cache-tokens', '1024', '--max-num-seqs', '8'],
  });
  try {
    let preempted = false;
    for (let burst = 0; burst < 8 && !preempted; ++burst) {  // who meets whom is chance
      await Promise.all(Array.from({ length: 8 }, async (_, i) => {
        const k = [0, 1, 0, 2, 0, 3, 0, 0][i % 8];
        const [choice] = (await other.complete({ ...body(prompts[k]), priority: i % 3 })).choices;
        assert.deepEqual(choice, expected[k]);
      }));
      preempted = (await other.metric('vllm:num_preemptions_total')) > 0;
    }
    assert.ok(preempted, 'the test must have preempted somebody');
  } finally {
    await other.stop();
  }
});

test('a chat carries its prompt\'s scores at the top', async () => {  // R46
  const messages = [{ role: 'user', content: 'Say one word about rain.' }];
  const ask = async (extra) => {
    const reply = await cluster.post('/v1/chat/completions', { messages, max_tokens: 8, temperature: 0, ...extra });
    assert.equal(reply.status, 200, reply.text);
    return reply.json();
  };
  const first = await ask({ logprobs: true });
  messages.push({ role: 'assistant', content: first.choices[0].message.content }, { role: 'user', content: 'And one about snow.' });
  const second = await ask({ prompt_logprobs: 2, n: 2, return_token_ids: true });
  assert.equal(second.prompt_logprobs.length, second.usage.prompt_tokens);
  assert.deepEqual(second.prompt_logprobs.map((e) => e === null), second.prompt_logprobs.map((_, i) => i === 0));
  const [plain] = (await cluster.complete({ prompt: second.prompt_token_ids, max_tokens: 0, prompt_logprobs: 2 })).choices;
  assert.deepEqual(second.prompt_logprobs, plain.prompt_logprobs);
});

test('a prompt is scored once for all of its choices', async () => {  // X1
  const body = { prompt: [await ids(harbour), (await ids('Yes')).slice(0, 1)], n: 3, seed: 5, temperature: 1, max_tokens: 6, echo: true, logprobs: 2, prompt_logprobs: 1 };
  // Ranks tell their counts with their heartbeats, which may be late: a count is one that has not moved for a second.
  const rows = async () => {
    for (let last = -1, still = 0; ; await new Promise((resolve) => setTimeout(resolve, 250))) {
      const told = await cluster.metric('helios_prompt_rows_total');
      still = told === last ? still + 1 : 0;
      if (still === 4) return told;
      last = told;
    }
  };
  const before = await rows();
  await cluster.complete({ ...body, n: 1 });
  const once = await rows();
  const { choices, usage } = await cluster.complete(body);
  assert.equal((await rows()) - once, once - before);
  assert.equal(choices.length, 6);
  assert.equal(usage.prompt_tokens, body.prompt.flat().length);
  for (let i = 0; i < 6; ++i) {
    const prompt = body.prompt[Math.floor(i / 3)];
    const [alone] = (await cluster.complete({ ...body, prompt: [prompt], n: 1, max_tokens: 0 })).choices;
    checkEchoed(choices[i], prompt.length, choices[i].logprobs.tokens.length - prompt.length);
    assert.deepEqual(choices[i].prompt_logprobs, alone.prompt_logprobs);
    for (const [key, values] of Object.entries(alone.logprobs)) assert.deepEqual(choices[i].logprobs[key].slice(0, prompt.length), values);
  }
  const whole = await cluster.complete({ ...body, prompt_logprobs: null });
  const { choices: pieces } = await streamed({ ...body, prompt_logprobs: null });
  whole.choices.forEach(({ text, logprobs }, i) => assert.deepEqual([pieces[i].text, pieces[i].logprobs], [text, logprobs]));
  assert.equal((await cluster.complete({ ...body, max_tokens: 0 })).choices.length, 6);
});

test('a grammar holds behind a scored prompt, and the tokens are the same', async () => {
  for (const structured_outputs of [{ choice: ['red', 'green tea'] }, { regex: '[ab]{3}c' }]) {
    const body = { prompt: harbour, max_tokens: 20, temperature: 1, seed: 3, logprobs: 2, structured_outputs };
    const [free] = (await cluster.complete(body)).choices;
    const [scored] = (await cluster.complete({ ...body, prompt_logprobs: 1 })).choices;
    assert.match(free.text, /^(red|green tea|[ab]{3}c)$/);
    assert.deepEqual([scored.text, scored.logprobs], [free.text, free.logprobs]);
  }
});

test('full contexts and a burst are scored; who leaves frees the place', async () => {
  const full = Array.from({ length: 2048 }, (_, i) => (i * 37) % 1500);
  const bodies = [
    { prompt: full, max_tokens: 0, prompt_logprobs: 20 },
    { prompt: full.slice(1), max_tokens: 1, echo: true, logprobs: 1 },
    ...Array.from({ length: 50 }, (_, i) => ({ prompt: `${i} ${words(60)}`, max_tokens: 1, echo: true, logprobs: 1 })),
  ];
  const replies = await Promise.all(bodies.map((body) => cluster.complete(body)));
  assert.equal(replies[0].choices[0].prompt_logprobs.filter((e) => e !== null).length, 2047);
  replies.slice(1).forEach(({ choices, usage }) => checkEchoed(choices[0], usage.prompt_tokens, 1));
  assert.equal((await cluster.post('/v1/completions', { prompt: full, max_tokens: 1, echo: true, logprobs: 1 })).status, 400);
  const leaving = new AbortController();
  const gone = cluster.post('/v1/completions', { prompt: full.slice(1), max_tokens: 1, echo: true, logprobs: 20, stream: true }, { signal: leaving.signal });
  setTimeout(() => leaving.abort(), 150);
  await assert.rejects(gone);
  await eventually('its slot is free', async () => (await cluster.metric('vllm:num_requests_running')) === 0, 5_000);
});

test('streams go on while long prompts are scored', async () => {  // R43: neither kind of step starves the other
  const full = Array.from({ length: 2000 }, (_, i) => (i * 41) % 1500);
  const stream = { prompt: harbour, max_tokens: 60, temperature: 0, ignore_eos: true };
  const expected = (await cluster.complete(stream)).choices[0].text;
  const order = [];
  await Promise.all([
    ...Array.from({ length: 4 }, () => cluster.complete({ prompt: full, max_tokens: 0, prompt_logprobs: 0 }).then(() => order.push('scored'))),
    cluster.complete(stream).then(({ choices }) => {
      order.push('stream');
      assert.equal(choices[0].text, expected);
    }),
  ]);
  assert.equal(order.length, 5);
  assert.notEqual(order.at(-1), 'stream', 'sixty tokens wait for no eight thousand rows');
});

test('without the flag it is refused by name, and a client can ask before', async () => {  // R39, R45
  const plain = await Cluster.start({ nproc: 1 });
  try {
    for (const [path, body, param] of [
      ['completions', { prompt: harbour, max_tokens: 1, prompt_logprobs: 0 }, 'prompt_logprobs'],
      ['completions', { prompt: harbour, max_tokens: 1, echo: true, logprobs: 1 }, 'echo'],
      ['chat/completions', { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 1, prompt_logprobs: 0 }, 'prompt_logprobs'],
    ]) {
      const reply = await plain.post(`/v1/${path}`, body);
      assert.equal(reply.status, 400, reply.text);
      assert.equal(reply.json().error.param, param);
      assert.match(reply.json().error.message, /--prompt-logprobs/);
    }
    assert.equal((await plain.get('/v1/models')).json().data[0].logprobs.prompt, false);
    assert.equal((await plain.complete({ prompt: harbour, max_tokens: 2, logprobs: 1 })).choices[0].logprobs.tokens.length, 2);
  } finally {
    await plain.stop();
  }
});

test('an evaluation of 320 choices in batches', async () => {
  const items = Array.from({ length: 80 }, (_, i) => ({ context: `Question ${i}: ${words(5 + (i % 40))}? Answer:`, ends: [' yes', ' no', ' red', ' the tide'] }));
  const flat = [];
  for (const { context, ends } of items) {
    const head = await ids(context);
    for (const end of ends) flat.push({ head, tokens: [...head, ...(await ids(end))] });
  }
  const scores = [];
  for (let at = 0; at < flat.length; at += 16) {
    const part = flat.slice(at, at + 16);
    const { choices } = await harness(part.map((p) => p.tokens));
    choices.forEach((choice, i) => {
      const values = choice.logprobs.token_logprobs.slice(part[i].head.length, -1);
      assert.equal(values.length, part[i].tokens.length - part[i].head.length);
      scores.push(values.reduce((a, b) => a + b, 0));
    });
  }
  assert.equal(scores.length, 320);
  assert.ok(new Set(scores).size > 200, 'not at chance level');
  const again = (await harness([flat[37].tokens])).choices[0].logprobs.token_logprobs.slice(flat[37].head.length, -1);
  assert.equal(again.reduce((a, b) => a + b, 0), scores[37]);
});
