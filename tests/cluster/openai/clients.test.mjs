// Two more clients as people use them: the Vercel AI SDK (its OpenAI provider over chat, responses and completions, and its
// provider for compatible servers) and LangChain's OpenAI classes. Their requests, their parsers, unchanged (D7).
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI, OpenAI } from '@langchain/openai';
import { APICallError, Output, generateText, jsonSchema, streamText, tool } from 'ai';
import { z } from 'zod';
import { Cluster } from './support.mjs';

let cluster, openai, compatible;
before(async () => {
  cluster = await Cluster.start();
  openai = createOpenAI({ baseURL: `${cluster.url}/v1`, apiKey: 'none' });
  compatible = createOpenAICompatible({ name: 'helios', baseURL: `${cluster.url}/v1`, includeUsage: true, supportsStructuredOutputs: true });
});
after(async () => {
  if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

const question = 'What is the capital of France?';
const calm = { temperature: 0, maxRetries: 0, maxOutputTokens: 120 };
const quiet = { chat_template_kwargs: { enable_thinking: false } };
const person = z.object({ name: z.string().max(12), age: z.number().int().min(0).max(200) });
const weather = {
  get_weather: tool({ description: 'The weather of a city', inputSchema: jsonSchema({ type: 'object', properties: { city: { type: 'string', maxLength: 12 } }, required: ['city'], additionalProperties: false }) }),
};
const spells = (entries) => Buffer.from(entries.flatMap(({ bytes }) => bytes)).toString('utf8');
const models = () => ({ chat: openai.chat('demo'), responses: openai.responses('demo'), compatible: compatible('demo') });

test('AI SDK: text, reasoning and usage, whole and streamed alike', async () => {
  for (const [name, model] of Object.entries(models())) {
    const whole = await generateText({ model, prompt: question, ...calm });
    assert.ok(whole.text.length > 0 && whole.usage.outputTokens > 0, name);
    assert.equal(whole.finishReason, 'stop', name);
    const stream = streamText({ model, prompt: question, ...calm });
    const parts = [];
    for await (const part of stream.fullStream) {
      assert.notEqual(part.type, 'error', `${name}: ${JSON.stringify(part)}`);
      parts.push(part);
    }
    const joined = (type) => parts.filter((part) => part.type === type).map(({ text }) => text).join('');
    assert.equal(joined('text-delta'), whole.text, name);
    if (name !== 'chat') assert.equal(joined('reasoning-delta').trim(), (whole.reasoningText ?? '').trim(), name); // chat's provider has no reasoning
    assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens, name);
    assert.equal(await stream.finishReason, 'stop', name);
  }
});

test('AI SDK: logprobs of chat and of responses', async () => {
  for (const name of ['chat', 'responses']) {
    const model = models()[name];
    const options = { model, prompt: question, ...calm, providerOptions: { openai: { logprobs: 3 } } };
    const { text, providerMetadata } = await generateText(options);
    const found = name === 'chat' ? providerMetadata.openai.logprobs : providerMetadata.openai.logprobs[0];
    assert.ok(found.length > 0, name);
    for (const { token, logprob, top_logprobs: top } of found) {
      assert.ok(typeof token === 'string' && logprob <= 0);
      assert.equal(top.length, 3);
      assert.equal(top[0].logprob, logprob, 'greedy');
    }
    if (name === 'responses') assert.equal(found.map(({ token }) => token).join(''), text); // of the output's text alone
    const stream = streamText(options);
    assert.equal(await stream.text, text);
    const streamed = (await stream.providerMetadata).openai.logprobs;
    assert.ok(streamed?.length > 0, `${name}: the last list must not be lost`);
  }
});

test('AI SDK: completions', async () => {
  const model = openai.completion('demo');
  const whole = await generateText({ model, prompt: 'Once upon a time', ...calm, maxOutputTokens: 24, providerOptions: { openai: { logprobs: 2 } } });
  assert.equal(whole.finishReason, 'length');
  assert.equal(whole.providerMetadata.openai.logprobs.tokens.join(''), whole.text);
  const stream = streamText({ model, prompt: 'Once upon a time', ...calm, maxOutputTokens: 24 });
  assert.equal(await stream.text, whole.text);
});

test('AI SDK: tools the model may call, and one that it must', async () => {
  for (const [name, model] of Object.entries(models())) {
    const options = { model, prompt: 'What is the weather in Oslo?', tools: weather, ...calm };
    const free = await generateText(options);
    assert.ok(['stop', 'tool-calls', 'length'].includes(free.finishReason), name);
    for (const toolChoice of ['required', { type: 'tool', toolName: 'get_weather' }]) {
      const forced = await generateText({ ...options, toolChoice });
      const [call] = forced.toolCalls;
      assert.equal(call.toolName, 'get_weather', name);
      assert.ok(!call.invalid && typeof call.input.city === 'string', JSON.stringify(call));
      const stream = streamText({ ...options, toolChoice });
      const calls = await stream.toolCalls;
      assert.deepEqual(calls.map(({ toolName, input }) => ({ toolName, input })), forced.toolCalls.map(({ toolName, input }) => ({ toolName, input })), name);
    }
  }
});

test('AI SDK: a call and its result go back, and an answer comes', async () => {
  for (const [name, model] of Object.entries(models())) {
    const { steps } = await generateText({
      model, prompt: 'What is the weather in Oslo?', ...calm, toolChoice: 'required', stopWhen: ({ steps: made }) => made.length === 2,
      providerOptions: { openai: { store: false } },  // else the provider refers to the reasoning by an id, and nothing is stored
      tools: { get_weather: { ...weather.get_weather, execute: async ({ city }) => ({ city, sky: 'sunny', temperature: 21 }) } },
      prepareStep: ({ stepNumber }) => (stepNumber > 0 ? { toolChoice: 'none' } : {}),
    });
    assert.equal(steps.length, 2, name);
    assert.equal(steps[0].toolResults[0].output.sky, 'sunny');
    assert.ok(steps[1].text.length + (steps[1].reasoningText ?? '').length > 0, name);
  }
});

test('AI SDK: structured output', async () => {
  for (const [name, model] of Object.entries(models())) {
    const options = { model, prompt: 'Give a person.', ...calm, output: Output.object({ schema: person }) };
    const { output } = await generateText(options);
    assert.deepEqual(person.parse(output), output, name);
    const stream = streamText(options);
    let last;
    for await (const partial of stream.partialOutputStream) last = partial;
    assert.deepEqual(last, output, name);
  }
});

test('AI SDK: errors carry the status and the message', async () => {
  for (const model of [openai.chat('other'), openai.responses('other'), compatible('other')]) {
    await assert.rejects(generateText({ model, prompt: 'Hi', ...calm }), (error) =>
      APICallError.isInstance(error) && error.statusCode === 404 && !error.isRetryable && /other/.test(error.message));
  }
  await assert.rejects(generateText({ model: openai.chat('demo'), prompt: 'Hi', ...calm, providerOptions: { openai: { logprobs: 21 } } }),
    (error) => error.statusCode === 400 && /20/.test(error.message));
});

const langchain = (more = {}) => new ChatOpenAI({
  model: 'demo', apiKey: 'none', configuration: { baseURL: `${cluster.url}/v1` }, temperature: 0, maxTokens: 120, maxRetries: 0,
  modelKwargs: quiet, ...more,
});

test('LangChain: chat, whole and streamed, with logprobs', async () => {
  const chat = langchain({ logprobs: true, topLogprobs: 2 });
  const whole = await chat.invoke(question);
  const { content } = whole.response_metadata.logprobs;
  assert.equal(spells(content), whole.content);
  for (const { top_logprobs: top, logprob } of content) assert.ok(top.length === 2 && top[0].logprob === logprob);
  assert.ok(whole.usage_metadata.output_tokens > content.length);
  let merged;
  for await (const chunk of await chat.stream(question)) merged = merged ? merged.concat(chunk) : chunk;
  assert.equal(merged.content, whole.content);
  assert.equal(merged.usage_metadata.output_tokens, whole.usage_metadata.output_tokens);
  assert.deepEqual(merged.response_metadata.logprobs.content, content, 'chunks merge into the same entries');
  const [one, two] = await chat.batch([question, 'Name a fruit.']);
  assert.equal(one.content, whole.content);
  assert.ok(two.content.length > 0);
});

test('LangChain: tools and structured output', async () => {
  const tools = [{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string', maxLength: 12 } }, required: ['city'], additionalProperties: false } } }];
  const asked = 'What is the weather in Oslo?';
  const free = await langchain().bindTools(tools).invoke(asked);
  assert.ok(free.content.length + free.tool_calls.length > 0);
  for (const choice of ['required', 'get_weather']) {
    const bound = langchain().bindTools(tools, { tool_choice: choice });
    const forced = await bound.invoke(asked);
    assert.equal(forced.tool_calls[0].name, 'get_weather');
    assert.equal(typeof forced.tool_calls[0].args.city, 'string');
    let merged;
    for await (const chunk of await bound.stream(asked)) merged = merged ? merged.concat(chunk) : chunk;
    assert.deepEqual(merged.tool_calls.map(({ name, args }) => ({ name, args })), forced.tool_calls.map(({ name, args }) => ({ name, args })));
  }
  for (const method of ['jsonSchema', 'functionCalling']) {
    const made = await langchain().withStructuredOutput(person, { method, name: 'person' }).invoke('Give a person.');
    assert.deepEqual(person.parse(made), made, method);
  }
});

test('LangChain: responses', async () => {
  const model = langchain({ useResponsesApi: true });
  const whole = await model.invoke(question);
  assert.ok(whole.text.length > 0);
  let merged;
  for await (const chunk of await model.stream(question)) merged = merged ? merged.concat(chunk) : chunk;
  assert.equal(merged.text, whole.text);
});

test('LangChain: completions, and errors', async () => {
  const model = new OpenAI({
    model: 'demo', apiKey: 'none', configuration: { baseURL: `${cluster.url}/v1` }, temperature: 0, maxTokens: 12, maxRetries: 0,
  });
  const text = await model.invoke('Once upon a time');
  assert.ok(text.length > 0);
  let streamed = '';
  for await (const chunk of await model.stream('Once upon a time')) streamed += chunk;
  assert.equal(streamed, text);
  await assert.rejects(langchain({ model: 'other' }).invoke('Hi'), (error) => error.status === 404);
  await assert.rejects(langchain({ logprobs: true, topLogprobs: 21 }).invoke('Hi'), (error) => error.status === 400);
});
