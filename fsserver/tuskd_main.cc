// tuskd: exports directories. All of it is in the library; see cli.h.
#include "fsserver/cli.h"
#include "proto/base/commit.h"

int main(int argc, char** argv) { return tusk::server::run_tuskd(argc, argv, "commit " TUSK_COMMIT); }
