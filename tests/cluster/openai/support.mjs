// Starts real clusters for the tests and looks at them from outside: HTTP, /proc, signals.
//
// HELIOS_BIN names the folder of binaries, HELIOS_DEMO the demo model. Ports are the kernel's choice.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';

export const bin = process.env.HELIOS_BIN ?? new URL('../../../build/release/bin', import.meta.url).pathname;
export const demo = process.env.HELIOS_DEMO ?? new URL('../../../deploy/demo', import.meta.url).pathname;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Polls until check() gives something truthy; fails with `what` after `ms`. */
export async function eventually(what, check, ms = 10_000) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) assert.fail(`not within ${ms} ms: ${what}`);
    await sleep(50);
  }
}

export class Cluster {
  static async start({ model = demo, nproc = 2, args = [], env = {} } = {}) {
    const cluster = new Cluster();
    cluster.log = '';
    cluster.stdout = '';
    const all = ['--model', model, '--nproc', String(nproc), '--port', '0', ...args];
    cluster.process = spawn(`${bin}/helios-launch`, all, { env: { ...process.env, ...env } });
    cluster.process.stderr.on('data', (data) => (cluster.log += data));
    cluster.process.stdout.on('data', (data) => (cluster.stdout += data));
    cluster.exited = new Promise((resolve) => cluster.process.on('exit', (code, signal) => resolve({ code, signal })));
    try {
      cluster.url = await eventually('the ready line', () => {
        if (cluster.process.exitCode !== null) assert.fail(`helios-launch ended with ${cluster.process.exitCode}:\n${cluster.log}`);
        return /^ready (http:\/\/\S+)$/m.exec(cluster.stdout)?.[1];
      }, 60_000);
    } catch (error) {
      cluster.process.kill('SIGKILL');
      error.message += `\n${cluster.log}`;
      throw error;
    }
    return cluster;
  }

  async get(path) {
    const reply = await fetch(this.url + path);
    const text = await reply.text();
    return { status: reply.status, headers: reply.headers, text, json: () => JSON.parse(text) };
  }

  async post(path, body, options = {}) {
    const reply = await fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...options.headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
      signal: options.signal,
    });
    const text = await reply.text();
    return { status: reply.status, headers: reply.headers, text, json: () => JSON.parse(text) };
  }

  /** A request that has to work. */
  async ask(path, body) {
    const reply = await this.post(path, body);
    assert.equal(reply.status, 200, reply.text);
    return reply.json();
  }

  async complete(body) {
    return this.ask('/v1/completions', body);
  }

  async health() {
    return this.get('/health').catch(() => ({ status: 0, json: () => ({}) }));
  }

  async ranks() {
    return (await this.health()).json().ranks;
  }

  async metric(name) {
    const { text } = await this.get('/metrics');
    let sum;
    for (const line of text.split('\n')) {
      if (line.startsWith(name + '{') || line.startsWith(name + ' ')) sum = (sum ?? 0) + Number(line.slice(line.lastIndexOf(' ') + 1));
    }
    assert.notEqual(sum, undefined, `no metric ${name}`);
    return sum;
  }

  async stop(signal = 'SIGTERM') {
    if (this.process.exitCode === null && this.process.signalCode === null) this.process.kill(signal);
    const result = await Promise.race([this.exited, new Promise((resolve) => setTimeout(resolve, 20_000, null).unref())]);
    if (!result) {
      this.process.kill('SIGKILL');
      assert.fail(`helios-launch did not end within 20 s of ${signal}:\n${this.log}`);
    }
    return result;
  }
}

/** Pids of processes whose parent is `pid`. */
export function children(pid) {
  const found = [];
  for (const entry of fs.readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const stat = fs.readFileSync(`/proc/${entry}/stat`, 'utf8');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (Number(fields[1]) === pid) found.push(Number(entry));
    } catch {
      // it ended while we looked
    }
  }
  return found;
}

export function alive(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2)[0] !== 'Z';
  } catch {
    return false;
  }
}

/** Reads an SSE body into its parsed events; '[DONE]' stays a string. */
export function events(text) {
  return text
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice(6))
    .map((data) => (data === '[DONE]' ? data : JSON.parse(data)));
}

/** Joins the chunks of a completions stream by choice index, as a client would. */
export function join(chunks) {
  const choices = [];
  for (const chunk of chunks) {
    for (const c of chunk.choices ?? []) {
      const choice = (choices[c.index] ??= { text: '', logprobs: null, finish_reason: null, stop_reason: null });
      choice.text += c.text;
      if (c.logprobs) {
        choice.logprobs ??= { text_offset: [], token_logprobs: [], tokens: [], top_logprobs: [] };
        for (const key of Object.keys(choice.logprobs)) choice.logprobs[key].push(...c.logprobs[key]);
      }
      if (c.finish_reason) Object.assign(choice, { finish_reason: c.finish_reason, stop_reason: c.stop_reason });
    }
  }
  return choices;
}
