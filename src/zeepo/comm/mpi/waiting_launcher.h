// The launcher's process on this machine, mpirun or orted, after the job has failed.
//
// Open MPI's launcher asks the daemons on all hosts to end and waits for their answer: for many minutes where a host is
// gone or its link is cut, and for as long on the host that is cut off.
#pragma once

namespace zeepo {

// Starts a small process that outlives this one: it gives the launcher some seconds to end by itself, then ends it.
// Does nothing under another launcher (Slurm ends its own). Throws nothing.
void end_waiting_launcher() noexcept;

}  // namespace zeepo
