// The Responses API through the real openai client and plain HTTP, on a two-rank cluster of real processes.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Cluster, eventually } from './support.mjs';

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

const include = ['message.output_text.logprobs'];
const quiet = { reasoning: { effort: 'none' } };
const ask = (input, more = {}) => ({ model: 'demo', input, temperature: 0, ...more });
const weather = {
  type: 'function', name: 'get_weather', strict: true, description: 'The weather of a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false },
};
const bytes = (entries) => Buffer.from(entries.flatMap((entry) => entry.bytes)).toString();
const part = (response) => response.output.find((item) => item.type === 'message').content[0];
/** What two runs of one request have in common. */
const said = (response) => response.output.map(({ id, call_id, ...item }) => item);

/** Each event's name is its type, they are numbered, and nothing follows the last. */
function events(text) {
  const all = text.trimEnd().split('\n\n').map((event) => {
    const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(event);
    const parsed = JSON.parse(data);
    assert.equal(parsed.type, name);
    return parsed;
  });
  assert.deepEqual(all.map((event) => event.sequence_number), all.map((_, i) => i));
  return all;
}
async function streamed(body) {
  const reply = await cluster.post('/v1/responses', { ...body, stream: true });
  assert.equal(reply.status, 200, reply.text);
  assert.match(reply.headers.get('content-type'), /^text\/event-stream/);
  return events(reply.text);
}
const types = (all) => all.map((event) => event.type.replace('response.', ''));

test('a message, whose entries are its tokens and the numbers chat reports', async () => {
  const body = ask('What is the capital of France?', { ...quiet, include, top_logprobs: 3, instructions: 'You are brief.' });
  const response = await client.responses.create(body);
  const { text, logprobs, annotations } = part(response);
  assert.equal(response.output_text, text);
  assert.match(text, /Paris/);
  assert.deepEqual(annotations, []);
  assert.equal(bytes(logprobs), text);
  assert.ok(logprobs.every((entry) => entry.top_logprobs.length === 3));
  assert.equal(response.usage.output_tokens, logprobs.length + 1, 'the EOS is counted and has no entry');
  assert.match(response.id, /^resp_[0-9a-f]{32}$/);
  assert.equal(response.status, 'completed');
  assert.equal(response.instructions, 'You are brief.');
  assert.equal(response.top_logprobs, 3);
  const chat = await client.chat.completions.create({
    model: 'demo', temperature: 0, logprobs: true, top_logprobs: 3, chat_template_kwargs: { enable_thinking: false },
    messages: [{ role: 'system', content: 'You are brief.' }, { role: 'user', content: body.input }],
  });
  assert.equal(chat.usage.prompt_tokens, response.usage.input_tokens);
  const order = ({ token, bytes, logprob, top_logprobs }) => ({ token, bytes, logprob, top_logprobs });
  assert.deepEqual(logprobs.map(order), chat.choices[0].logprobs.content.map(order));
  assert.deepEqual(part(await client.responses.create(ask(body.input, quiet))).logprobs, []);
});

test('reasoning is an item of its own, and its tokens have no entries', async () => {  // R33
  const body = ask('What is the capital of France?', { include, top_logprobs: 1 });
  const response = await client.responses.create(body);
  const [reasoning, message] = response.output;
  assert.equal(reasoning.type, 'reasoning');
  assert.deepEqual(reasoning.summary, []);
  assert.ok(reasoning.content[0].text.length > 0);
  assert.doesNotMatch(JSON.stringify(response.output), /think>/);
  assert.equal(bytes(message.content[0].logprobs), message.content[0].text);
  const { output_tokens, output_tokens_details } = response.usage;
  assert.ok(output_tokens_details.reasoning_tokens > 0);
  assert.ok(message.content[0].logprobs.length + output_tokens_details.reasoning_tokens < output_tokens);
  const all = await streamed(body);
  assert.deepEqual(said(all.at(-1).response), said(response));
  const seen = types(all).filter((type, i, list) => type !== list[i - 1]);
  const item = (kind) => ['output_item.added', 'content_part.added', `${kind}.delta`, `${kind}.done`, 'content_part.done', 'output_item.done'];
  assert.deepEqual(seen, ['created', 'in_progress', ...item('reasoning_text'), ...item('output_text'), 'completed']);
});

test('the client\'s own stream ends with the response that a plain request gets', async () => {
  for (const body of [
    ask('Name two rivers.', { ...quiet, include, top_logprobs: 2 }),
    ask('Name two rivers.', { include, temperature: 0.8, seed: 5, max_output_tokens: 80 }),
    ask('Copy: 🧎🏽‍♀️👨‍👩‍👧', { ...quiet, include, max_output_tokens: 40 }),
    ask('Weather in Oslo?', { ...quiet, tools: [weather], include }),
  ]) {
    const plain = await client.responses.create(body);
    const stream = client.responses.stream(body);
    const deltas = [];
    stream.on('response.output_text.delta', (event) => deltas.push(...event.logprobs));
    const final = await stream.finalResponse().catch((error) => assert.fail(`${error} for ${JSON.stringify(body)}`));
    const bare = (items) => JSON.parse(JSON.stringify(items, (key, value) => (/^parsed/.test(key) ? undefined : value)));
    assert.deepEqual(bare(said(final)), said(plain));
    assert.equal(final.status, plain.status);
    const message = plain.output.find((item) => item.type === 'message');
    assert.deepEqual(deltas, message?.content[0].logprobs ?? []);
  }
});

test('every list of entries in a stream is the same one', async () => {  // R32
  const all = await streamed(ask('Name two rivers.', { include, top_logprobs: 2, max_output_tokens: 60 }));
  const find = (type, pick = () => true) => all.filter((event) => event.type === `response.${type}` && pick(event));
  const entries = find('output_text.delta').flatMap((event) => event.logprobs);
  assert.ok(entries.length > 2);
  assert.ok(find('output_text.delta').every((event) => bytes(event.logprobs).startsWith(event.delta.slice(0, 1))));
  assert.deepEqual(find('output_text.done')[0].logprobs, entries);
  assert.deepEqual(find('content_part.done', (event) => event.part.type === 'output_text')[0].part.logprobs, entries);
  const done = find('output_item.done', (event) => event.item.type === 'message')[0].item;
  assert.deepEqual(done.content[0].logprobs, entries);
  assert.deepEqual(part(all.at(-1).response).logprobs, entries);
});

test('a function call, and the answer to its output', async () => {
  const input = [{ role: 'user', content: 'Weather in Oslo?' }];
  const first = await client.responses.create(ask(input, { ...quiet, tools: [weather] }));
  const [call] = first.output;
  assert.equal(call.type, 'function_call');
  assert.equal(call.name, 'get_weather');
  assert.deepEqual(JSON.parse(call.arguments), { city: 'Oslo' });
  assert.match(call.call_id, /^call_[0-9a-f]{32}$/);
  input.push(...first.output, { type: 'function_call_output', call_id: call.call_id, output: 'Sunny, 21 degrees.' });
  const second = await client.responses.create(ask(input, { ...quiet, tools: [weather], include }));
  assert.equal(bytes(part(second).logprobs), second.output_text);
  const chat = await client.chat.completions.create({
    model: 'demo', temperature: 0, chat_template_kwargs: { enable_thinking: false }, tool_choice: 'none',
    tools: [{ type: 'function', function: { name: weather.name, description: weather.description, parameters: weather.parameters } }],
    messages: [
      { role: 'user', content: 'Weather in Oslo?' },
      { role: 'assistant', content: null, tool_calls: [{ id: call.call_id, type: 'function', function: { name: call.name, arguments: call.arguments } }] },
      { role: 'tool', tool_call_id: call.call_id, content: 'Sunny, 21 degrees.' },
    ],
  });
  assert.equal(second.usage.input_tokens, chat.usage.prompt_tokens, 'the same conversation is the same prompt');
  const none = await client.responses.create(ask('Weather in Oslo?', { ...quiet, tools: [weather], tool_choice: 'none' }));
  assert.equal(none.output[0].type, 'message', 'without calls to read, what the model writes is text');
});

test('calls that must be made, and text of a schema', async () => {
  for (const tool_choice of ['required', { type: 'function', name: 'get_weather' }]) {
    const body = ask('Hello!', { ...quiet, tools: [weather], tool_choice, parallel_tool_calls: false, max_output_tokens: 200 });
    const [call] = (await client.responses.create(body)).output;
    assert.equal(call.type, 'function_call');
    assert.equal(call.name, 'get_weather');
    assert.deepEqual(Object.keys(JSON.parse(call.arguments)), ['city']);
  }
  const schema = { type: 'object', properties: { rivers: { type: 'array', items: { enum: ['Rhine', 'Elbe'] }, maxItems: 2 } }, required: ['rivers'], additionalProperties: false };
  const format = { type: 'json_schema', name: 'rivers', schema, strict: true };
  const response = await client.responses.create(ask('Name two rivers.', { ...quiet, text: { format }, include, max_output_tokens: 200 }));
  assert.deepEqual(Object.keys(JSON.parse(response.output_text)), ['rivers']);
  assert.deepEqual(response.text.format, format);
  assert.equal(bytes(part(response).logprobs), response.output_text);
});

test('a limit leaves the response incomplete, streamed too', async () => {
  const body = ask('Name two rivers.', { ...quiet, max_output_tokens: 3, include });
  const response = await client.responses.create(body);
  assert.equal(response.status, 'incomplete');
  assert.deepEqual(response.incomplete_details, { reason: 'max_output_tokens' });
  assert.equal(response.output[0].status, 'incomplete');
  assert.equal(part(response).logprobs.length, 3);
  const last = (await streamed(body)).at(-1);
  assert.equal(last.type, 'response.incomplete');
  assert.deepEqual(said(last.response), said(response));
});

test('what cannot be had is refused by name', async () => {
  for (const [more, status, param] of [
    [{ previous_response_id: 'resp_1' }, 404, 'response_id'],
    [{ background: true }, 400, 'background'],
    [{ include: ['nothing'] }, 400, 'include'],
    [{ top_logprobs: 21 }, 400, 'top_logprobs'],
    [{ tools: [{ type: 'web_search' }] }, 400, 'tools.0.type'],
    [{ model: 'other' }, 404, 'model'],
    [{ input: [{ type: 'item_reference', id: 'msg_1' }] }, 400, 'input.0.type'],
  ]) {
    const error = await client.responses.create(ask('x', more)).then(() => assert.fail(JSON.stringify(more)), (e) => e);
    assert.deepEqual([error.status, error.param], [status, param]);
  }
  for (const method of ['retrieve', 'cancel', 'delete']) {
    const error = await client.responses[method]('resp_1').then(() => assert.fail('nothing is stored'), (e) => e);
    assert.deepEqual([error.status, error.type], [404, 'invalid_request_error']);
  }
});

test('a rank lost in a stream is an error event and the failed response', async () => {
  const [{ pid }] = await cluster.ranks();
  const reply = await fetch(`${cluster.url}/v1/responses`, {
    method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify(ask('Count.', { ...quiet, stream: true, ignore_eos: true, max_output_tokens: 900 })),
  });
  let text = '';
  const decoder = new TextDecoder();
  for await (const chunk of reply.body) {
    if (!text.includes('output_text.delta') && (text + decoder.decode(chunk)).includes('output_text.delta')) process.kill(pid, 'SIGKILL');
    text += decoder.decode(chunk);
  }
  const [error, failed] = events(text).slice(-2);
  assert.deepEqual([error.type, error.code, error.param], ['error', 'server_error', null]);
  assert.equal(failed.type, 'response.failed');
  assert.deepEqual(failed.response.error, { code: 'server_error', message: error.message });
  await eventually('the ranks are back', async () => (await cluster.health()).status === 200, 20_000);
});
