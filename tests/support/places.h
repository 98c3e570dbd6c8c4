// Where the build has put what tests use. Not as macros: sources that name no folder compile to the same objects in
// every checkout, so that one compiler cache serves them all.
#pragma once

namespace zeepo {

extern const char* const kTestData;   // tests/data
extern const char* const kProgram;    // zeepo
extern const char* const kMpirun;     // empty without MPI
extern const char* const kFaultShim;  // the library that refuses calls (tests/soak/fault_shim.c)

}  // namespace zeepo
