// tuskd: exports directories. All of it is in the library; see cli.h.
#include "fsserver/cli.h"

int main(int argc, char** argv) { return tusk::server::run_tuskd(argc, argv); }
