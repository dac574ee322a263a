// The chat API through the real openai client and plain HTTP, on a two-rank cluster of real processes.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Cluster, events } from './support.mjs';

let cluster, client;
before(async () => {
  cluster = await Cluster.start();
  client = new OpenAI({ baseURL: cluster.url + '/v1', apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  if (!cluster) return;
  const { code } = await cluster.stop();
  assert.equal(code, 0, cluster.log);
});

const path = '/v1/chat/completions';
const quiet = { chat_template_kwargs: { enable_thinking: false } };
const ask = (content, more = {}) => ({ model: 'demo', messages: [{ role: 'user', content }], temperature: 0, ...quiet, ...more });
const bytes = (entries) => Buffer.from(entries.flatMap((entry) => entry.bytes));

async function chat(body) {
  const reply = await cluster.post(path, body);
  assert.equal(reply.status, 200, reply.text);
  return reply.json();
}
async function stream(body) {
  const reply = await cluster.post(path, { ...body, stream: true });
  assert.equal(reply.status, 200, reply.text);
  assert.match(reply.headers.get('content-type'), /^text\/event-stream/);
  const all = events(reply.text);
  assert.equal(all.at(-1), '[DONE]');
  return all.slice(0, -1);
}
/** Joins the chunks of a chat stream by choice index, as a client would. */
function joined(chunks) {
  const choices = [];
  for (const chunk of chunks) {
    for (const { index, delta, logprobs, finish_reason, stop_reason, token_ids } of chunk.choices) {
      const choice = (choices[index] ??= { content: '', reasoning: '', calls: [], entries: null, token_ids: null, finish_reason: null });
      choice.content += delta.content ?? '';
      choice.reasoning += delta.reasoning ?? '';
      for (const part of delta.tool_calls ?? []) {
        const call = (choice.calls[part.index] ??= { name: part.function.name, arguments: '' });
        call.arguments += part.function.arguments;
      }
      if (logprobs) choice.entries = [...(choice.entries ?? []), ...logprobs.content];
      if (token_ids) choice.token_ids = [...(choice.token_ids ?? []), ...token_ids];
      if (finish_reason) Object.assign(choice, { finish_reason, stop_reason });
    }
  }
  return choices;
}
const flat = (choice) => ({
  content: choice.message.content ?? '', reasoning: choice.message.reasoning ?? '',
  calls: (choice.message.tool_calls ?? []).map((call) => call.function), entries: choice.logprobs?.content ?? null, token_ids: choice.token_ids,
  finish_reason: choice.finish_reason, stop_reason: choice.stop_reason,
});

test('the model answers, and every entry is a logprob with its bytes', async () => {
  const reply = await client.chat.completions.create(ask('What is the capital of France?', { logprobs: true, top_logprobs: 5 }));
  const [choice] = reply.choices;
  assert.equal(choice.message.content, 'The capital of France is Paris.');
  assert.equal(choice.message.role, 'assistant');
  assert.equal(choice.finish_reason, 'stop');
  assert.equal(choice.stop_reason, null);
  assert.ok(!('tool_calls' in choice.message));
  const entries = choice.logprobs.content;
  assert.equal(choice.logprobs.refusal, null);
  assert.equal(bytes(entries).toString(), choice.message.content);
  assert.equal(reply.usage.completion_tokens, entries.length + 1, 'the EOS is counted and has no entry');  // R31
  for (const entry of entries) {
    assert.deepEqual(Object.keys(entry), ['token', 'logprob', 'bytes', 'top_logprobs']);
    assert.equal(entry.top_logprobs.length, 5);
    const values = entry.top_logprobs.map((top) => top.logprob);
    assert.deepEqual(values, [...values].sort((a, b) => b - a));
    assert.equal(entry.logprob, values[0], 'greedy: the chosen token is the best');
    assert.deepEqual(entry.top_logprobs[0].bytes, entry.bytes);
    for (const top of entry.top_logprobs) assert.equal(Buffer.from(top.bytes).toString(), top.token);
    assert.ok(values.every((v) => v <= 0 && Number.isFinite(v)) && values.reduce((sum, v) => sum + Math.exp(v), 0) <= 1.0001);
  }
  assert.match(reply.id, /^chatcmpl-[0-9a-f]{32}$/);
  assert.equal(reply.object, 'chat.completion');
  assert.ok(reply._request_id);
});

test('the values are those of completions, bit for bit', async () => {  // R1, X1
  const body = { logprobs: true, top_logprobs: 20, max_tokens: 24, temperature: 0.9, seed: 11 };
  const chatted = await chat({ ...ask('Tell me a story.', body), return_token_ids: true });
  const [choice] = chatted.choices;
  const completed = await cluster.complete({
    prompt: chatted.prompt_token_ids, max_tokens: 24, temperature: 0.9, seed: 11, logprobs: 20,
    return_token_ids: true, return_tokens_as_token_ids: true,
  });
  assert.deepEqual(choice.token_ids, completed.choices[0].token_ids);
  const { token_logprobs, top_logprobs } = completed.choices[0].logprobs;
  const entries = choice.logprobs.content;
  assert.equal(entries.length, token_logprobs.length);
  entries.forEach((entry, i) => {
    assert.equal(entry.logprob, token_logprobs[i]);
    assert.deepEqual(entry.top_logprobs.map((top) => [`token_id:${top.token_id}`, top.logprob]), Object.entries(top_logprobs[i]).slice(0, 20));
  });
  const tokenized = (await cluster.post('/tokenize', { messages: [{ role: 'user', content: 'Tell me a story.' }], ...quiet })).json();
  assert.deepEqual(tokenized.tokens, chatted.prompt_token_ids);
});

test('the chosen token is an alternative only if it is one of the N best', async () => {
  const { choices } = await chat(ask('Tell me a story.', { temperature: 2, seed: 5, max_tokens: 60, ignore_eos: true, logprobs: true, top_logprobs: 3, return_token_ids: true }));
  let outside = 0;
  for (const entry of choices[0].logprobs.content) {
    assert.equal(entry.top_logprobs.length, 3);
    const same = entry.top_logprobs.find((top) => top.token_id === entry.token_id);
    if (same) assert.equal(same.logprob, entry.logprob);
    else ++outside;
    if (!same) assert.ok(entry.logprob <= entry.top_logprobs[2].logprob);
  }
  assert.ok(outside > 0);
});

test('a stream carries the same content, entries and ids as the whole reply, for every choice', async () => {
  for (const body of [
    ask('Say something with an emoji.', { temperature: 1.1, seed: 3, n: 3, max_tokens: 30, logprobs: true, top_logprobs: 2, return_token_ids: true }),
    ask('Describe a lighthouse.', { max_tokens: 40, logprobs: true }),
    ask('Describe a lighthouse.', { temperature: 1.4, seed: 2, max_tokens: 40, ignore_eos: true, logprobs: true, top_logprobs: 1, stream_interval: 7 }),
    ask('What is the capital of Spain?', { stop: ['capital of', 'zzz'], logprobs: true }),
    ask('What is the capital of Spain?', { stop: ['ital of'], include_stop_str_in_output: true, logprobs: true }),
  ]) {
    const whole = await chat(body);
    const chunks = await stream({ ...body, stream_options: { include_usage: true } });
    assert.deepEqual(joined(chunks), whole.choices.map(flat), JSON.stringify(body));
    const n = whole.choices.length;
    chunks.slice(0, n).forEach((chunk, index) => {
      assert.deepEqual(chunk.choices[0], { index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null });
    });
    for (const chunk of chunks.slice(n, -1)) {
      const { logprobs } = chunk.choices[0];
      assert.ok(logprobs === null || logprobs.content.length > 0);
      assert.ok(!('usage' in chunk));
    }
    const last = chunks.at(-1);
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
    assert.ok(last.system_fingerprint);
  }
});

const weather = {
  type: 'function',
  function: { name: 'get_weather', description: 'Get the weather for a city.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } },
};
const add = {
  type: 'function',
  function: { name: 'add', description: 'Add two numbers.',
    parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] } },
};

test('reasoning stands apart from the answer, and its tokens are counted', async () => {
  const body = { model: 'demo', messages: [{ role: 'user', content: 'What is the capital of Japan?' }], temperature: 0, logprobs: true, top_logprobs: 1, return_token_ids: true };
  const whole = await chat(body);
  const [choice] = whole.choices;
  assert.equal(choice.message.reasoning, 'The user asks for the capital of Japan. It is Tokyo.');
  assert.equal(choice.message.content, 'The capital of Japan is Tokyo.');
  // Entries cover all tokens, reasoning too.
  assert.match(bytes(choice.logprobs.content).toString(), /^<think>\n[^]*<\/think>\n\nThe capital of Japan is Tokyo\.$/);
  const [open, close] = [1530, 1531].map((id) => choice.token_ids.indexOf(id));
  assert.equal(whole.usage.completion_tokens_details.reasoning_tokens, close - open - 1);
  const chunks = await stream({ ...body, stream_options: { include_usage: true } });
  assert.deepEqual(joined(chunks), [flat(choice)]);
  assert.deepEqual(chunks.at(-1).usage.completion_tokens_details, whole.usage.completion_tokens_details);

  const [hidden] = (await chat({ ...body, include_reasoning: false })).choices;
  assert.deepEqual([hidden.message.reasoning, hidden.message.content, hidden.logprobs, hidden.token_ids], [null, choice.message.content, null, null]);
  const shown = await stream({ ...body, include_reasoning: false });
  assert.equal(joined(shown)[0].content, choice.message.content);
  assert.ok(shown.every((chunk) => !('reasoning' in chunk.choices[0].delta) && chunk.choices[0].logprobs === null));
  // A budget that ends inside the reasoning.
  const [cut] = (await chat({ ...body, max_tokens: 6 })).choices;
  assert.deepEqual([cut.message.content, cut.finish_reason], [null, 'length']);
  assert.ok(choice.message.reasoning.startsWith(cut.message.reasoning));
});

test('a tool is called, streamed and not, and its result answered', async () => {
  const messages = [{ role: 'user', content: 'What is the weather in Paris?' }];
  const body = { model: 'demo', messages, tools: [weather, add], temperature: 0, logprobs: true };
  const whole = await chat(body);
  const [choice] = whole.choices;
  assert.equal(choice.finish_reason, 'tool_calls');
  assert.equal(choice.message.content, null);
  assert.equal(choice.message.reasoning, 'The user wants the weather in Paris. I will call get_weather.');
  const [call] = choice.message.tool_calls;
  assert.match(call.id, /^chatcmpl-tool-[0-9a-f]{32}$/);
  assert.deepEqual([call.type, call.function.name, JSON.parse(call.function.arguments)], ['function', 'get_weather', { city: 'Paris' }]);
  assert.deepEqual(joined(await stream(body)), [flat(choice)]);
  const helped = await client.chat.completions.stream(body).finalChatCompletion();
  assert.deepEqual(helped.choices[0].message.tool_calls[0].function, call.function);
  assert.equal(helped.choices[0].finish_reason, 'tool_calls');

  const [quietly] = (await chat(ask('Add 123 and 456.', { tools: [weather, add] }))).choices;
  assert.deepEqual(JSON.parse(quietly.message.tool_calls[0].function.arguments), { a: 123, b: 456 });
  const [untouched] = (await chat(ask('What do bees make?', { tools: [weather] }))).choices;
  assert.deepEqual([untouched.message.content, untouched.finish_reason, 'tool_calls' in untouched.message], ['Bees make honey.', 'stop', false]);
  const [none] = (await chat({ ...body, tool_choice: 'none' })).choices;
  assert.equal(none.finish_reason, 'stop');
  assert.match(none.message.content, /^<tool_call>/, 'with none the text of a call is content');

  const [answer] = (await chat({
    ...body, ...quiet,
    messages: [
      { role: 'user', content: 'What is the weather in Lisbon?' },
      { role: 'assistant', content: null, tool_calls: [{ id: 'c1', type: 'function', function: { name: 'get_weather', arguments: '{"city": "Lisbon"}' } }] },
      { role: 'tool', tool_call_id: 'c1', content: '{"temperature": 21, "sky": "sunny"}' },
    ],
    tools: [weather],
  })).choices;
  assert.equal(answer.message.content, 'It is sunny and 21 degrees in Lisbon.');
});

test('a budget closes the reasoning; the forced token has no entry', async () => {  // R4
  const body = { model: 'demo', messages: [{ role: 'user', content: 'What is the capital of Japan?' }], temperature: 0, logprobs: true, top_logprobs: 1, return_token_ids: true };
  const [free] = (await chat(body)).choices;
  const [open, close] = [1530, 1531];
  for (const budget of [0, 3, 5]) {
    const whole = await chat({ ...body, thinking_token_budget: budget });
    const [choice] = whole.choices;
    assert.equal(choice.token_ids.indexOf(close), choice.token_ids.indexOf(open) + 1 + budget);
    assert.deepEqual(choice.token_ids.slice(0, 1 + budget), free.token_ids.slice(0, 1 + budget));
    assert.equal(whole.usage.completion_tokens_details.reasoning_tokens, budget);
    assert.equal(choice.finish_reason, 'stop');
    const entries = choice.logprobs.content;
    assert.deepEqual(entries.map((entry) => entry.token_id), choice.token_ids.filter((id) => id !== close).slice(0, -1));
    assert.deepEqual(entries.slice(0, 1 + budget), free.logprobs.content.slice(0, 1 + budget), 'and moves no value before it');  // X1
    assert.deepEqual(joined(await stream({ ...body, thinking_token_budget: budget })), [flat(choice)]);
  }
  for (const budget of [-1, 1000]) {
    assert.deepEqual((await chat({ ...body, thinking_token_budget: budget })).choices, [free]);
  }
  for (const budget of [-2, 2.5, true, '3']) {
    const reply = await cluster.post(path, { ...body, thinking_token_budget: budget });
    assert.deepEqual([reply.status, reply.json().error.param], [400, 'thinking_token_budget'], reply.text);
  }
  const [completed] = (await cluster.complete({
    prompt: '<|im_start|>user\nWhat is the capital of Japan?<|im_end|>\n<|im_start|>assistant\n<think>\n',
    max_tokens: 8, temperature: 0, thinking_token_budget: 2, logprobs: 0, return_token_ids: true,
  })).choices;
  assert.equal(completed.token_ids.indexOf(close), 2);
  assert.equal(completed.logprobs.tokens.length, completed.token_ids.length - 1 - (completed.finish_reason === 'stop'));
});

test('required and named choices are calls of the tools, whatever the model would say', async () => {
  const body = { model: 'demo', messages: [{ role: 'user', content: 'What do bees make?' }], tools: [weather, add], temperature: 0, max_tokens: 120, logprobs: true };
  const [required] = (await chat({ ...body, tool_choice: 'required', parallel_tool_calls: false })).choices;
  assert.equal(required.finish_reason, 'tool_calls', JSON.stringify(required.message));
  assert.equal(required.message.tool_calls.length, 1);
  assert.ok(['get_weather', 'add'].includes(required.message.tool_calls[0].function.name));
  assert.deepEqual(joined(await stream({ ...body, tool_choice: 'required', parallel_tool_calls: false })), [flat(required)]);
  const [named] = (await chat({ ...body, tool_choice: { type: 'function', function: { name: 'add' } } })).choices;
  assert.equal(named.message.tool_calls[0].function.name, 'add');
  assert.equal(named.finish_reason, 'stop');
  const { a, b } = JSON.parse(named.message.tool_calls[0].function.arguments);
  assert.ok(typeof a === 'number' && typeof b === 'number');
});

test("the client's own stream helper puts the answer together", async () => {
  const runner = client.chat.completions.stream(ask('What is the capital of France?', { logprobs: true, top_logprobs: 1, n: 2 }));
  const whole = await runner.finalChatCompletion();
  for (const choice of whole.choices) {
    assert.equal(choice.message.content, 'The capital of France is Paris.');
    assert.equal(bytes(choice.logprobs.content).toString(), choice.message.content, 'no entry twice, none lost');
  }
});

test('running usage grows from chunk to chunk of a choice', async () => {
  const chunks = await stream(ask('Describe a lighthouse.', { max_tokens: 12, stream_options: { include_usage: true, continuous_usage_stats: true } }));
  let before = -1;
  for (const { choices, usage } of chunks.slice(0, -1)) {
    assert.ok(usage.completion_tokens > before && choices.length === 1);
    before = usage.completion_tokens;
  }
  assert.equal(chunks.at(-1).usage.completion_tokens, before);
});

test('logprobs on, off and with no alternatives', async () => {
  const plain = ask('Hi', { max_tokens: 3 });
  for (const off of [{}, { logprobs: false }, { logprobs: null, top_logprobs: 0 }, { logprobs: 0 }]) {
    assert.equal((await chat({ ...plain, ...off })).choices[0].logprobs, null);
  }
  for (const on of [{ logprobs: true }, { logprobs: true, top_logprobs: null }, { logprobs: true, top_logprobs: 0 }, { logprobs: 1 }]) {
    for (const entry of (await chat({ ...plain, ...on })).choices[0].logprobs.content) assert.deepEqual(entry.top_logprobs, []);
  }
  const [twenty] = (await chat({ ...plain, logprobs: true, top_logprobs: 20 })).choices;
  const [five] = (await chat({ ...plain, logprobs: true, top_logprobs: 5 })).choices;
  twenty.logprobs.content.forEach((entry, i) => assert.deepEqual(entry.top_logprobs.slice(0, 5), five.logprobs.content[i].top_logprobs));
});

test('selected ids are reported in their order, and nothing else', async () => {  // R7
  const ids = [700, 3, 1535, 42];
  const body = ask('Hi', { max_tokens: 4, logprobs: true, top_logprobs: 3, return_token_ids: true });
  const natural = await chat({ ...body, top_logprobs: 20 });
  const { choices } = await chat({ ...body, logprob_token_ids: ids });
  choices[0].logprobs.content.forEach((entry, i) => {
    assert.deepEqual(entry.top_logprobs.map((top) => top.token_id), ids);
    assert.equal(entry.logprob, natural.choices[0].logprobs.content[i].logprob);
  });
});

test('split characters: bytes rebuild the content, and fragments show nothing', async () => {  // R29
  const { tokens } = (await cluster.post('/tokenize', { prompt: '龘', add_special_tokens: false })).json();
  assert.equal(tokens.length, 3, 'a token a byte');
  const body = ask('x', { temperature: 2, seed: 4, structured_outputs: { regex: '龘{9}' }, logprobs: true, top_logprobs: 2 });
  const { choices } = await chat(body);
  const entries = choices[0].logprobs.content;
  assert.equal(bytes(entries).toString('utf8'), choices[0].message.content);
  assert.ok(choices[0].message.content.includes('龘'));
  assert.ok(entries.some((entry) => entry.token === '' && entry.bytes.length === 1), 'a fragment');
  assert.ok(entries.some((entry) => entry.token === '龘' && entry.bytes.length === 1), 'the byte that completes it');
  assert.deepEqual(joined(await stream(body))[0].entries, entries);
});

test('the final message goes on, and can be repeated in front', async () => {
  const messages = [{ role: 'user', content: 'What is the capital of France?' }, { role: 'assistant', content: 'The capital of' }];
  const body = { model: 'demo', messages, temperature: 0, continue_final_message: true, return_prompt_text: true };
  const plain = await chat(body);
  assert.ok(plain.prompt_text.endsWith('The capital of'), plain.prompt_text);
  const echoed = await chat({ ...body, echo: true });
  assert.equal(echoed.choices[0].message.content, 'The capital of' + plain.choices[0].message.content);
  const chunks = await stream({ ...body, echo: true });
  assert.deepEqual(chunks[1].choices[0].delta, { content: 'The capital of' });
  assert.equal(chunks[1].choices[0].logprobs, null);
  assert.equal(joined(chunks)[0].content, echoed.choices[0].message.content);
});

test('messages in parts, a system message, and fields that change nothing', async () => {
  const parts = { role: 'user', content: [{ type: 'text', text: 'What is the capital of France?' }] };
  const { choices } = await chat({ messages: [parts], temperature: 0, ...quiet, store: true, metadata: { a: 'b' }, service_tier: 'auto', modalities: ['text'], user: 'u', unknown: 1 });
  assert.equal(choices[0].message.content, 'The capital of France is Paris.');
  const told = await chat(ask('x', { messages: [{ role: 'system', content: 'Be brief.' }, parts], return_prompt_text: true }));
  assert.match(told.prompt_text, /^<\|im_start\|>system\nBe brief\./);
});

test('what is wrong is a 400 that names its field, before any byte of a stream', async () => {
  const hi = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 2 };
  for (const [body, param] of [
    [{}, 'messages'],
    [{ messages: [] }, 'messages'],
    [{ messages: [{ role: 'robot', content: 'x' }] }, 'messages.0.role'],
    [{ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] }, 'messages.0.content.0.type'],
    [{ messages: [{ role: 'user', content: [{ type: 'input_audio', input_audio: {} }] }] }, 'messages.0.content.0.type'],
    [{ ...hi, logprobs: 5 }, 'logprobs'],
    [{ ...hi, top_logprobs: 2 }, 'top_logprobs'],
    [{ ...hi, logprobs: true, top_logprobs: 21 }, 'top_logprobs'],
    [{ ...hi, logprobs: true, top_logprobs: 1000000000 }, 'top_logprobs'],
    [{ ...hi, logprobs: true, top_logprobs: -1 }, 'top_logprobs'],
    [{ ...hi, logprobs: true, top_logprobs: '5' }, 'top_logprobs'],
    [{ ...hi, logprobs: true, top_logprobs: 2.5 }, 'top_logprobs'],
    [{ ...hi, logprobs: true, top_logprobs: 3, logprob_token_ids: [] }, 'logprob_token_ids'],
    [{ ...hi, logit_bias: { 999999999: -100 } }, 'logit_bias'],
    [{ ...hi, logit_bias: { '-1': 5 } }, 'logit_bias'],
    [{ ...hi, max_tokens: 0 }, 'max_tokens'],
    [{ ...hi, max_completion_tokens: 0 }, 'max_completion_tokens'],
    [{ ...hi, max_tokens: 100000 }, 'messages'],
    [{ ...hi, chat_template: '{{ 1 }}' }, 'chat_template'],
    [{ ...hi, tools: [] }, 'tools'],
    [{ ...hi, tool_choice: 'auto' }, 'tool_choice'],
    [{ ...hi, continue_final_message: true, add_generation_prompt: true }, 'continue_final_message'],
    [{ ...hi, reasoning_effort: 'vast' }, 'reasoning_effort'],
  ]) {
    for (const streamed of [false, true]) {
      const reply = await cluster.post(path, { ...body, stream: streamed });
      assert.equal(reply.status, 400, `${JSON.stringify(body)}: ${reply.text}`);
      const { error } = reply.json();
      assert.deepEqual([error.param, error.type, error.code], [param, 'BadRequestError', 400], reply.text);
    }
  }
  await assert.rejects(client.chat.completions.create({ ...hi, model: 'other' }), (error) => error.status === 404 && error.param === 'model');
  for (const [raw, status] of [
    ['{"messages":[{"role":"user","content":"left \\ude0a right"}],"max_tokens":2}', 400],
    ['{"messages":[{"role":"user","content":"fine \\ud83d\\ude00"}],"max_tokens":2}', 200],
  ]) {
    assert.equal((await cluster.post(path, raw)).status, status);
  }
  await chat(hi);
});

test('chats of many kinds at once all succeed', async () => {
  const bodies = [
    ask('a', { max_tokens: 9, logprobs: true, top_logprobs: 20 }),
    ask('b', { max_tokens: 3 }),
    ask('c', { max_tokens: 5, n: 3, temperature: 1, seed: 1, logprobs: true }),
    ask('d', { max_tokens: 12, logprobs: true, top_logprobs: 1 }),
  ];
  const alone = [];
  for (const body of bodies) alone.push(await chat(body));
  const together = await Promise.all(bodies.map(chat));
  together.forEach((reply, i) => assert.deepEqual(reply.choices, alone[i].choices));  // X1
});
