# dailyrollup: an ordinary PGXS build, plus targets of our own.
#
#   make, make install                       as every PGXS extension
#   make installcheck                        likewise, on a server with
#                                            max_prepared_transactions > 0
#   make test, lint, demo, analyze, coverage, sanitize
#                                            see test/run.sh and test/demo.sh
#   make asserts, asan, valgrind             the tests on a server that watches
#                                            itself, see test/server.sh
#   make bench                               see test/bench.sh
#
# Variables: PG_CONFIG (which PostgreSQL), WERROR=1 (warnings are errors),
# WAITPOINTS=1 (the tests' build, never installed for use), COVERAGE=1 (gcov),
# SANITIZE=1 (UndefinedBehaviorSanitizer);
# of the tests: KINDS, TESTS, PG_SOURCE, PGTEST_USER, DR_TEST_DATA, DR_SEED,
# DR_SEEDS, DR_RACES, OTHER_PG_CONFIG;
# of the benchmarks: BENCH, BENCH_ROWS, BENCH_DAYS, BENCH_ROUNDS.
#
# sql/ holds the install and upgrade scripts, whose names contain "--", and
# the inputs of pg_regress, whose names never do.

EXTENSION = dailyrollup
MODULE_big = dailyrollup
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))
DATA = $(sort $(wildcard sql/$(EXTENSION)--*.sql))
PGFILEDESC = "dailyrollup - exact daily rollups of an event table"

REGRESS = $(filter-out $(EXTENSION)--%,$(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql))))
EXTRA_CLEAN = build test-output

ifneq ($(WAITPOINTS),)
PG_CPPFLAGS += -DDR_WAITPOINTS
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation --load-extension=$(EXTENSION)
endif

# less what the server's own headers and flags provoke
ifneq ($(WERROR),)
PG_CFLAGS += -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare $(if $(findstring clang,$(shell $(CC) --version)),$(clang_exceptions))
clang_exceptions = -Wno-unknown-warning-option -Wno-ignored-attributes -Wno-ignored-optimization-argument
endif

ifneq ($(COVERAGE),)
PG_CFLAGS += -O0 --coverage
SHLIB_LINK += --coverage
endif

# the server itself is built without, so the library brings the runtime along
ifneq ($(SANITIZE),)
PG_CFLAGS += -O1 -fno-omit-frame-pointer -fsanitize=undefined -fno-sanitize-recover=undefined
SHLIB_LINK += -fsanitize=undefined
endif

PG_CONFIG ?= pg_config
.DEFAULT_GOAL := all

# Our own targets need no PostgreSQL yet: the tests install one.  PGXS is read
# for every other target.
own = test check lint demo bench analyze coverage sanitize asserts asan valgrind
.PHONY: $(own)

# which PostgreSQL the scripts shall use; empty: theirs to find
named_pg_config = $(if $(filter file,$(origin PG_CONFIG)),,$(PG_CONFIG))

test:
	@PG_CONFIG='$(named_pg_config)' test/run.sh
check: test
lint:
	@perl test/lint.pl
demo:
	@PG_CONFIG='$(named_pg_config)' test/demo.sh
bench:
	@PG_CONFIG='$(named_pg_config)' test/bench.sh
analyze:
	@PG_CONFIG='$(named_pg_config)' test/analyze.sh
coverage:
	@PG_CONFIG='$(named_pg_config)' COVERAGE=1 test/run.sh
sanitize:
	@PG_CONFIG='$(named_pg_config)' SANITIZE=1 test/run.sh
asserts asan valgrind:
	@PG_CONFIG='$(named_pg_config)' SERVER=$@ test/run.sh

ifneq ($(filter-out $(own),$(or $(MAKECMDGOALS),all)),)
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(wildcard $(PGXS)),)
include $(PGXS)
ifneq ($(filter 9.% 10 11 12 13 14,$(MAJORVERSION)),)
$(error dailyrollup needs PostgreSQL 15 or later, $(PG_CONFIG) is of $(MAJORVERSION))
endif
# few and small: whatever header changes, all is compiled again
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.h) Makefile
else
clean distclean:
	rm -rf $(EXTRA_CLEAN) src/*.o src/*.bc $(MODULE_big).so results regression.diffs regression.out
all install uninstall installcheck:
	$(error no PostgreSQL to build for: install postgresql-server-dev-NN, or set PG_CONFIG)
endif
endif
