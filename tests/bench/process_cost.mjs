// What a process has used of the processor, as Linux counts it.
import fs from 'node:fs';

const ticksPerSecond = 100;  // USER_HZ, the same on every Linux

/** Seconds on a processor, of all threads: in all (to the nanosecond), and as user's and kernel's (to 10 ms). */
export function cpuOf(pid) {
  let nanoseconds = 0;
  for (const thread of fs.readdirSync(`/proc/${pid}/task`)) {
    nanoseconds += Number(fs.readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]);
  }
  const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return { all: nanoseconds / 1e9, user: fields[11] / ticksPerSecond, kernel: fields[12] / ticksPerSecond };
}

/** The coordinator among the processes that helios-launch started. */
export function coordinatorOf(pids) {
  return pids.find((pid) => fs.readFileSync(`/proc/${pid}/comm`, 'utf8').startsWith('helios-coordina'));
}
