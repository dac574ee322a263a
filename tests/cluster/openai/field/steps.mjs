// Runs the steps of one case: in order, groups together, some behind the others' backs.
import assert from 'node:assert/strict';
import { sleep } from '../support.mjs';
import { send } from './client.mjs';
import { expand } from './placeholders.mjs';

const fields = new Set(['step', 'method', 'path', 'body', 'raw', 'group', 'copies', 'repeat', 'rounds', 'server', 'background',
  'disconnect_after', 'read_bytes_per_s', 'wait_s', 'every_s', 'at_once']);
/** Pauses between repeats (`every_s`) run faster than the case says; what it waits for (`wait_s`) does not. */
const pace = 0.2;

export const stepsOf = ({ request }) => (Array.isArray(request) ? request : [{ step: 'a', ...request }]);

/** What a case's requests gave: answers by step, in the order of copies, repeats and rounds. */
export class Run {
  answers = new Map(); // step -> Answer[]
  requests = new Map(); // step -> {path, body}, filled in; of copies the last

  /** `serverOf(step)` gives the Server that a step is put to; without a step the case's own. */
  constructor(theCase, serverOf) {
    this.case = theCase;
    this.serverOf = serverOf;
  }

  first(step) {
    const answers = this.answers.get(step);
    assert.ok(answers?.length, `no answer of step ${step}`);
    return answers[0];
  }
  all(pattern = '*') {
    const wanted = pattern.endsWith('*') ? (name) => name.startsWith(pattern.slice(0, -1)) : (name) => name === pattern;
    const found = [...this.answers].filter(([name]) => wanted(name));
    assert.ok(found.length, `no step ${pattern}`);
    return found.flatMap(([name, answers]) => answers.map((answer, i) => ({ name, answer, what: `${name}${answers.length > 1 ? `[${i}]` : ''}` })));
  }
  /** How the server spells single ids. */
  textsOf(step, ids) {
    const { url } = this.serverOf(stepsOf(this.case).find((s) => s.step === step));
    return Promise.all(ids.map(async (id) =>
      (await send(url, { method: 'POST', path: '/detokenize', body: { tokens: [id] } })).body.prompt));
  }
  urlOf(step) {
    return this.serverOf(stepsOf(this.case).find((s) => s.step === step)).url;
  }
  get only() {
    return this.answers.size === 1 ? [...this.answers.keys()][0] : null;
  }

  scope(step, copy, body) {
    const server = this.serverOf(step);
    return Object.assign(Object.create(server), {
      copy, prompt: body?.prompt,
      knows: (name) => this.answers.has(name),
      step: (name) => this.first(name),
      request: (name) => this.requests.get(name),
      ask: async (asked) => (await send(server.url, { method: 'POST', path: '/v1/completions', body: asked })).body,
    });
  }

  async fill(step, copy) {
    const scope = this.scope(step, copy, step.body);
    const request = { method: step.method, path: step.path };
    if (step.raw !== undefined) request.raw = step.raw.replaceAll('MODEL', scope.model);
    if (step.body !== undefined) request.body = await expand(step.body, scope);
    return request;
  }

  /** A step whose tokens later placeholders need is asked for logprobs: they change no text. */
  needsTokens(step) {
    return new RegExp(`\\{\\{(token|straddle):${step.step}:`).test(JSON.stringify(this.case));
  }

  async once(step, copy, more = {}) {
    const request = await this.fill(step, copy);
    if (request.body && this.needsTokens(step) && request.body.logprobs === undefined) request.body.logprobs = 0;
    this.requests.set(step.step, request);
    const onEvent = step.disconnect_after ? (count) => (count >= step.disconnect_after ? 'leave' : undefined) : more.onEvent;
    const answer = await send(this.serverOf(step).url, { ...request, onEvent, bytesPerSecond: step.read_bytes_per_s, signal: more.signal });
    answer.request = request.body;
    return answer;
  }

  /** All copies, repeats and rounds of one step. */
  async many(step) {
    const { copies = 1, repeat = 1, rounds = 1 } = step;
    const answers = [];
    for (let round = 0; round < rounds * repeat; ++round) {
      if (step.group) {
        answers.push(...(await Promise.all(Array.from({ length: copies }, (_, i) => this.once(step, i)))));
      } else {
        const { at_once: atOnce = 1 } = step; // an adapted case's: some of many copies run side by side
        for (let i = 0; i < copies; i += atOnce) {
          answers.push(...(await Promise.all(Array.from({ length: Math.min(atOnce, copies - i) }, (_, j) => this.once(step, i + j)))));
        }
      }
      if (step.every_s && round + 1 < repeat) await sleep(1000 * step.every_s * pace);
    }
    return answers;
  }

  async run() {
    const steps = stepsOf(this.case);
    const behind = [];
    const leave = new AbortController();
    for (let at = 0; at < steps.length;) {
      let end = at + 1;
      while (steps[at].group && end < steps.length && steps[end].group === steps[at].group) ++end;
      const together = steps.slice(at, end);
      for (const step of together) for (const field of Object.keys(step)) assert.ok(fields.has(field), `unknown step field ${field}`);
      if (together[0].wait_s) await sleep(1000 * together[0].wait_s);
      if (together[0].background) {
        behind.push([together[0].step, this.once(together[0], 0, { signal: leave.signal })]);
        await sleep(300); // so that it has begun
      } else {
        const answers = await Promise.all(together.map((step) => this.many(step)));
        together.forEach((step, i) => this.answers.set(step.step, answers[i]));
        await this.afterStep?.(together[0].step);
      }
      at = end;
    }
    await this.beforeLeaving?.();
    leave.abort();
    for (const [name, answer] of behind) this.answers.set(name, [await answer]);
    return this;
  }
}
