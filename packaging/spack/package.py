# Copyright 2026 The wireup authors
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

# For Spack 1.0 and newer (package API v2): put this folder into a repository as packages/wireup.

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Wireup(Package):
    """A launcher of parallel jobs: starts programs of MPICH, Intel MPI, Open MPI and others on one machine or on many."""

    # The sources have no address of their own yet: name yours, or `spack develop --path SOURCES wireup@main`.
    git = "https://wireup.invalid/wireup.git"

    license("Apache-2.0 OR MIT", checked_by="wireup")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")

    # Opened while a job runs, and only for programs that need them.
    variant("pmix", default=True, description="Install a PMIx library, for Open MPI")
    depends_on("pmix@4.2:", type="run", when="+pmix")

    requires("platform=linux")

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("xtask", "libraries")
        cargo("build", "--release", "--locked", "-p", "wireup", "-p", "wireup-bench", "-p", "wireup-simulate")
        Executable("target/release/wireup")("install", "--prefix", prefix)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.wireup)("run", "-n", "4", "hostname")
