# A thin front: CMake and the scripts in tools/ do the work. `make help` lists the targets.
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: all bootstrap bootstrap-full build test check demo asan tsan fuzz bench format install clean help

all: build

bootstrap:
	@tools/bootstrap

bootstrap-full:
	@tools/bootstrap --full

build: bootstrap
	@tools/build release

# Everything that has to hold before a change is merged. The last line says how much did.
test: bootstrap-full
	@tools/test-all

# Two minutes, no model: unit and kernel tests of the release build and the source checks.
check: bootstrap
	@tools/build release
	@tools/check-includes
	@tools/checksrc --quiet
	@tools/run-tests --build build/release --suite unit,kernels,tools

demo: bootstrap
	@tools/build release dflash_cli
	@tools/demo

asan: bootstrap-full
	@tools/build asan
	@tools/run-tests --build build/asan --suite unit,kernels

tsan: bootstrap-full
	@tools/build tsan
	@tools/run-tests --build build/tsan --suite unit,kernels --uses-threads

fuzz: bootstrap-full
	@tools/build fuzz
	@tools/fuzz

bench: build
	@tools/run-bench

format: bootstrap-full
	@find src include tests bench examples -name '*.[ch]' -exec clang-format -i {} +

install: build
	@DESTDIR='$(DESTDIR)' cmake --install build/release --prefix '$(PREFIX)'

clean:
	@rm -rf build

help:
	@echo 'make                 build build/release/dflash (installs missing Debian packages first)'
	@echo 'make test            all tests, sanitizers, fuzzing; the last line is the total'
	@echo 'make check           quick: unit and kernel tests, source checks; no model needed'
	@echo 'make demo            short demonstration with the bundled draft model'
	@echo 'make asan|tsan|fuzz  one of the stages of make test'
	@echo 'make bench           run the benchmark programs'
	@echo 'make format          clang-format over the tree'
	@echo 'make install PREFIX=/usr/local [DESTDIR=]'
	@echo 'make clean           remove build/'
