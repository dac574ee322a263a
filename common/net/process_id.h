// This program's getpid(), from memory.
//
// ZeroMQ asks for the process id whenever a thread looks at its mailbox or signals another's, to notice that it was
// forked: eight times a step on the coordinator, and glibc has asked the kernel each time since 2.25. On a virtual
// machine a call of the kernel may cost more than what it does. So whoever links this room has a getpid() that asks
// once, and once more in the child of a fork().
#pragma once

namespace helios {

/// Before a thread or a fork(); idempotent. Without it getpid() asks each time.
void remember_process_id();

}  // namespace helios
