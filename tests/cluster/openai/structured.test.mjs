// Structured output on the demo model: whatever the seed and the temperature, the text is what was asked for, judged by
// JSON.parse and RegExp, and every number reported beside it is the model's own (R2, X1).
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Cluster, events, join } from './support.mjs';

let cluster, client;
before(async () => {
  cluster = await Cluster.start();
  client = new OpenAI({ baseURL: cluster.url + '/v1', apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

const base = { model: 'demo', prompt: 'Answer: ', max_tokens: 160, temperature: 1, seed: 1 };
const complete = (extra) => client.completions.create({ ...base, ...extra });

const person = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 12 },
    age: { type: 'integer', minimum: 0, maximum: 150 },
    mood: { enum: ['glad', 'sad', null] },
    tags: { type: 'array', items: { type: 'string', pattern: '^[a-z]{2,5}$' }, minItems: 1, maxItems: 3 },
  },
  required: ['name', 'age', 'tags'],
  additionalProperties: false,
};
function isPerson(text) {
  const value = JSON.parse(text);
  for (const key of Object.keys(value)) assert.ok(key in person.properties, text);
  const length = [...value.name].length;
  assert.ok(length >= 1 && length <= 12, text);
  assert.ok(Number.isInteger(value.age) && value.age >= 0 && value.age <= 150, text);
  assert.ok(!('mood' in value) || ['glad', 'sad', null].includes(value.mood), text);
  assert.ok(value.tags.length >= 1 && value.tags.length <= 3 && value.tags.every((tag) => /^[a-z]{2,5}$/.test(tag)), text);
}
const matches = (regex) => (text) => assert.match(text, regex);

const forms = [
  ['response_format', { response_format: { type: 'json_schema', json_schema: { name: 'person', schema: person } } }, isPerson],
  ['structured_outputs.json', { structured_outputs: { json: person, disable_any_whitespace: true } },
    (text) => (isPerson(text), assert.doesNotMatch(text.replace(/"(?:\\.|[^"\\])*"/g, ''), /\s/))],
  ['structured_outputs.regex', { structured_outputs: { regex: '(?:[A-Z][a-zé]{1,8} ){1,3}\\d{2}\\.' } },
    matches(/^(?:[A-Z][a-zé]{1,8} ){1,3}\d{2}\.$/u)],
  ['structured_outputs.choice', { structured_outputs: { choice: ['yes', 'no', 'I do not know'] } },
    matches(/^(yes|no|I do not know)$/)],
  ['structured_outputs.grammar', { structured_outputs: { grammar: 'root ::= sum "=" num\nsum ::= num ("+" num){1,3}\nnum ::= [1-9] [0-9]{0,2}' } },
    matches(/^[1-9]\d{0,2}(\+[1-9]\d{0,2}){1,3}=[1-9]\d{0,2}$/)],
  ['guided_regex', { guided_regex: '[^a-z]{3,9}' }, matches(/^[^a-z]{3,9}$/u)],
  ['guided_choice', { guided_choice: ['a', 'ab', 'abc'] }, matches(/^(a|ab|abc)$/)],
];

for (const [name, fields, check] of forms) {
  test(`${name}: every text is one of the grammar's, at any seed and temperature`, async () => {
    const seeds = [1, 2, 3, 4, 5, 6];
    const replies = await Promise.all(seeds.map((seed) =>
      complete({ ...fields, seed, temperature: seed === 1 ? 0 : 0.3 * seed, top_p: seed === 3 ? 0.9 : 1, n: 2 })));
    let whole = 0;
    for (const { choices, usage } of replies) {
      for (const choice of choices) {
        if (choice.finish_reason === 'length') continue;  // 160 tokens were not enough
        assert.equal(choice.finish_reason, 'stop');
        check(choice.text);
        ++whole;
      }
      assert.ok(usage.completion_tokens > 0);
    }
    assert.ok(whole >= 10, `${whole} of 12 came to their end`);
  });
}

test('json_object: any object, cut where the budget ends and nowhere else', async () => {
  for (const seed of [1, 2, 3, 4]) {
    const { choices: [choice] } = await complete({ response_format: { type: 'json_object' }, seed, temperature: 0.8, max_tokens: 48 });
    if (choice.finish_reason === 'stop') assert.equal(JSON.parse(choice.text).constructor, Object);
    else assert.match(choice.text, /^\{/);
  }
});

test('after the last brace only the end is left, and it has no entry', async () => {
  const empty = { type: 'object', properties: {}, additionalProperties: false };
  const reply = await complete({ structured_outputs: { json: empty }, temperature: 0, logprobs: 5 });
  const [choice] = reply.choices;
  assert.deepEqual(JSON.parse(choice.text), {});
  assert.equal(choice.finish_reason, 'stop');
  assert.equal(choice.logprobs.tokens.join(''), choice.text);
  assert.equal(reply.usage.completion_tokens, choice.logprobs.tokens.length + 1);
});

test('logprobs are those of the free distribution behind the same tokens, bit for bit', async () => {  // R2, X1
  const ids = (await cluster.post('/tokenize', { prompt: base.prompt })).json().tokens;
  for (const temperature of [0, 1.2]) {
    const [constrained] = (await complete({ structured_outputs: { regex: '[A-Z]{2}-\\d{3}' }, temperature, logprobs: 5,
      prompt: ids, return_token_ids: true, return_tokens_as_token_ids: true })).choices;
    const tokens = constrained.token_ids, values = constrained.logprobs.token_logprobs;
    assert.ok(values.length >= 3);
    let unlikely = 0;
    for (let i = 0; i < values.length; ++i) {
      const free = { prompt: [...ids, ...tokens.slice(0, i)], max_tokens: 1, temperature: 0, return_tokens_as_token_ids: true };
      const [natural] = (await complete({ ...free, logprobs: 5 })).choices;
      const best = (top) => Object.entries(top).slice(0, 5);
      assert.deepEqual(best(constrained.logprobs.top_logprobs[i]), best(natural.logprobs.top_logprobs[0]), `position ${i}`);
      const [own] = (await complete({ ...free, logprobs: 0, logprob_token_ids: [tokens[i]] })).choices;
      assert.equal(own.logprobs.top_logprobs[0][`token_id:${tokens[i]}`], values[i], `position ${i}`);
      unlikely += values[i] < -3;
    }
    assert.ok(unlikely > 0, 'the grammar made the model say what it would not');
  }
});

test('chat: a schema may change the chosen token, never the alternatives and their values', async () => {  // R2
  const messages = [{ role: 'user', content: 'Give a person as JSON.' }];
  const chat = (extra) => client.chat.completions.create({ model: 'demo', messages, max_tokens: 60, temperature: 0, logprobs: true, top_logprobs: 5,
    chat_template_kwargs: { enable_thinking: false }, ...extra });
  const age = { type: 'object', properties: { age: { type: 'integer' } }, required: ['age'] };
  const format = (schema) => ({ response_format: { type: 'json_schema', json_schema: { name: 'p', schema } } });
  const [free] = (await chat({})).choices, [formed] = (await chat(format(age))).choices;
  assert.deepEqual(formed.logprobs.content[0].top_logprobs, free.logprobs.content[0].top_logprobs);
  if (formed.finish_reason === 'stop') assert.ok(Number.isInteger(JSON.parse(formed.message.content).age));
  else assert.match(formed.message.content, /^\{/);
  // After the closing brace only special tokens are left: the reply is whole and finite.
  const [empty] = (await chat({ ...format({ type: 'object', properties: {}, additionalProperties: false }), max_tokens: 40 })).choices;
  assert.deepEqual(JSON.parse(empty.message.content), {});
  assert.equal(empty.finish_reason, 'stop');
  for (const { top_logprobs } of empty.logprobs.content) {
    assert.equal(top_logprobs.length, 5);
    for (const { logprob } of top_logprobs) assert.ok(logprob <= 0 && logprob > -9999);
  }
});

test('reasoning runs free, and the constraint begins behind it', async () => {  // R2, R4
  const chat = async (body) => (await cluster.ask('/v1/chat/completions', body)).choices[0];
  const body = { messages: [{ role: 'user', content: 'What is the capital of Japan?' }], temperature: 0, max_tokens: 120, logprobs: true, return_token_ids: true };
  const free = await chat(body);
  assert.ok(free.message.reasoning.length > 0);
  const city = { type: 'object', properties: { city: { type: 'string', maxLength: 12 } }, required: ['city'], additionalProperties: false };
  const formed = { ...body, response_format: { type: 'json_schema', json_schema: { name: 'c', schema: city } } };
  const whole = await chat(formed);
  assert.equal(whole.message.reasoning, free.message.reasoning);
  assert.equal(typeof JSON.parse(whole.message.content).city, 'string', whole.message.content);
  assert.equal(whole.finish_reason, 'stop');
  const close = free.token_ids.indexOf(1531);
  assert.deepEqual(whole.logprobs.content.slice(0, close + 1), free.logprobs.content.slice(0, close + 1));
  // Inside reasoning that the prompt has opened, bare or as a chat; and with a budget, whose close is forced.
  const prompt = '<|im_start|>user\nWhat is the capital of Japan?<|im_end|>\n<|im_start|>assistant\n<think>\n';
  for (const budget of [undefined, 3]) {
    const [{ text, token_ids }] = (await cluster.complete({ prompt, temperature: 0, max_tokens: 120, structured_outputs: { json: city }, thinking_token_budget: budget, return_token_ids: true })).choices;
    const [thought, answer] = text.split('</think>');
    assert.equal(typeof JSON.parse(answer).city, 'string', text);
    assert.ok(thought.length > 0);
    if (budget) assert.equal(token_ids.indexOf(1531), budget);
  }
  const short = await chat({ ...formed, thinking_token_budget: 4 });
  assert.equal(short.token_ids.indexOf(1531), short.token_ids.indexOf(1530) + 5);
  assert.equal(typeof JSON.parse(short.message.content).city, 'string');
  // Calls that must be made, and the text of a response.
  const tool = { name: 'add', parameters: { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] } };
  const called = await chat({ ...body, tools: [{ type: 'function', function: tool }], tool_choice: 'required', parallel_tool_calls: false, thinking_token_budget: 4 });
  assert.ok(called.message.reasoning.length > 0);
  assert.ok(Number.isInteger(JSON.parse(called.message.tool_calls[0].function.arguments).a));
  const response = await cluster.ask('/v1/responses', { input: 'What is the capital of Japan?', temperature: 0, max_output_tokens: 120, text: { format: { type: 'json_schema', name: 'c', schema: city } } });
  assert.deepEqual(response.output.map((item) => item.type), ['reasoning', 'message']);
  assert.equal(typeof JSON.parse(response.output[1].content[0].text).city, 'string');
});

test('beside tools the answer is a call or what was asked for', async () => {
  const weather = { type: 'function', function: { name: 'get_weather', description: 'Get the weather of a city.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } };
  const ask = async (content) => (await cluster.ask('/v1/chat/completions', { messages: [{ role: 'user', content }], tools: [weather], temperature: 0, max_tokens: 120,
    structured_outputs: { regex: '[A-Z][a-z ]{1,60}\\.' }, chat_template_kwargs: { enable_thinking: false } })).choices[0];
  const called = await ask('What is the weather in Paris?');
  assert.equal(called.finish_reason, 'tool_calls', JSON.stringify(called));
  assert.equal(JSON.parse(called.message.tool_calls[0].function.arguments).city, 'Paris');
  assert.equal(called.message.content, null);
  const answered = await ask('What do bees make?');
  assert.equal(answered.finish_reason, 'stop', JSON.stringify(answered));
  assert.equal(answered.message.content, 'Bees make honey.');
});

test('bad words are not spelled, and no number moves before the first that would be', async () => {  // R2
  const body = { prompt: '<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n', max_tokens: 24, temperature: 0, logprobs: 3, return_token_ids: true };
  const [free] = (await cluster.complete(body)).choices;
  assert.match(free.text, /Paris/);
  const [without] = (await cluster.complete({ ...body, bad_words: ['Paris'] })).choices;
  assert.doesNotMatch(without.text, / Paris/);
  const same = free.token_ids.findIndex((id, i) => id !== without.token_ids[i]);
  assert.ok(same > 3);
  assert.deepEqual(without.logprobs.token_logprobs.slice(0, same), free.logprobs.token_logprobs.slice(0, same));
  const best = (choice) => Object.entries(choice.logprobs.top_logprobs[same]).slice(0, 3);
  assert.deepEqual(best(without), best(free), 'the alternatives are raw: the word is still the likeliest');
  const [chatted] = (await cluster.ask('/v1/chat/completions', { messages: [{ role: 'user', content: 'What is the capital of France?' }], temperature: 0, bad_words: ['Paris', 'the'],
    chat_template_kwargs: { enable_thinking: false }, max_tokens: 24 })).choices;
  assert.doesNotMatch(chatted.message.content, / Paris| the /);
  const refused = await cluster.post('/v1/completions', { ...body, bad_words: Array(1025).fill('x') });
  assert.deepEqual([refused.status, refused.json().error.param], [400, 'bad_words']);
});

test('a stream is the plain reply in pieces', async () => {
  const body = { ...base, response_format: { type: 'json_schema', json_schema: { name: 'p', schema: person } }, logprobs: 2, seed: 7 };
  const plain = await cluster.complete(body);
  const streamed = await cluster.post('/v1/completions', { ...body, stream: true });
  assert.equal(streamed.status, 200);
  const [choice] = join(events(streamed.text).filter((event) => event !== '[DONE]'));
  assert.equal(choice.text, plain.choices[0].text);
  assert.deepEqual(choice.logprobs, plain.choices[0].logprobs);
  assert.equal(choice.finish_reason, plain.choices[0].finish_reason);
});

test('alone or in company, masked or not, each request gets its own tokens and numbers', async () => {  // X1
  const requests = forms.map(([, fields], i) => ({ ...fields, seed: 40 + i, logprobs: 3, max_tokens: 40 }));
  for (let i = 0; i < 5; ++i) requests.push({ seed: 60 + i, logprobs: 3, max_tokens: 60, ignore_eos: true });
  const alone = [];
  for (const request of requests) alone.push((await complete(request)).choices);
  const together = await Promise.all(requests.map((request) => complete(request)));
  together.forEach(({ choices }, i) => assert.deepEqual(choices, alone[i], `request ${i}`));
});

test('several prompts, stop strings, min_tokens and allowed ids hold beside a grammar', async () => {
  const several = await complete({ prompt: ['one', 'two'], n: 2, structured_outputs: { regex: '[a-z]{2,6}' } });
  assert.equal(several.choices.length, 4);
  for (const choice of several.choices) assert.match(choice.text, /^[a-z]{2,6}$/);
  const stopped = await complete({ structured_outputs: { regex: '[0-9]{4,}x[0-9]*' }, stop: ['x'], temperature: 0.7 });
  assert.match(stopped.choices[0].text, /^[0-9]*$/);
  const long = await complete({ structured_outputs: { regex: '[a-z ]+' }, min_tokens: 20, max_tokens: 24, temperature: 1.5 });
  assert.ok(long.usage.completion_tokens >= 20);
  assert.match(long.choices[0].text, /^[a-z ]+$/);
});

test('what leaves nothing to say fails that request by name, and nobody else', async () => {
  const beside = complete({ max_tokens: 60, ignore_eos: true });
  const dead = await cluster.post('/v1/completions', { ...base, structured_outputs: { choice: ['no'] }, min_tokens: 50 });
  assert.equal(dead.status, 400, dead.text);
  assert.equal(dead.json().error.param, 'min_tokens');
  const unlisted = await cluster.post('/v1/completions', { ...base, structured_outputs: { choice: ['no'] }, allowed_token_ids: [5] });
  assert.equal(unlisted.status, 400, unlisted.text);
  assert.equal(unlisted.json().error.param, 'allowed_token_ids');
  const streamed = await cluster.post('/v1/completions', { ...base, stream: true, structured_outputs: { choice: ['no'] }, min_tokens: 50 });
  const last = events(streamed.text).at(-2);
  assert.equal(last.error.param, 'min_tokens', streamed.text);
  assert.equal((await beside).choices[0].finish_reason, 'length');
});

test('what cannot be compiled is a 400 that names it', async () => {
  const refused = async (fields, param, mentions) => {
    const reply = await cluster.post('/v1/completions', { ...base, ...fields });
    assert.equal(reply.status, 400, reply.text);
    assert.equal(reply.json().error.param, param);
    assert.match(reply.json().error.message, mentions);
  };
  await refused({ structured_outputs: { json: { type: 'object', patternProperties: {} } } }, 'structured_outputs.json', /patternProperties/);
  await refused({ structured_outputs: { regex: '(?=a)b' } }, 'structured_outputs.regex', /look/);
  await refused({ guided_json: { type: 'array', items: {}, minItems: 5e8 } }, 'guided_json', /too large/);
  await refused({ guided_grammar: 'root ::= root "a" | "b"' }, 'guided_grammar', /recurs/);
});

test('the words of masks are counted: the shard\'s, once a token', async () => {
  // Ranks tell their counts with their heartbeats, which may be late: a count is one that has not moved for a second.
  const told = async () => {
    let last = -1;
    for (let still = 0; still < 4; await new Promise((resolve) => setTimeout(resolve, 250))) {
      const words = await cluster.metric('helios_mask_upload_words_total');
      still = words === last ? still + 1 : 0;
      last = words;
    }
    return last;
  };
  const before = await told();
  const { usage } = await complete({ structured_outputs: { regex: '[a-z]{3,30}' }, n: 2 });
  await complete({ max_tokens: 8, ignore_eos: true });  // masks nothing
  assert.equal((await told()) - before, usage.completion_tokens * 1536 / 32);  // over both ranks
});
