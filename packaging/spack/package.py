# SPDX-License-Identifier: BSD-3-Clause
"""Spack recipe of libdist. Not run yet: see packaging/README.md."""

from spack.package import *


class Libdist(AutotoolsPackage):
    """Collective communication for any C program: over shared memory and TCP,
    MPI, UCX, or NCCL, chosen by name when the program starts."""

    homepage = "https://libdist.invalid/"
    url = "https://libdist.invalid/libdist-0.1.0.tar.gz"

    license("BSD-3-Clause")

    # The checksum will be added for the first release.
    version("0.1.0")

    variant("mpi", default=True, description="Build the mpi module, for Open MPI or MPICH")
    variant("ucx", default=False, description="Build the ucx module")
    variant("cuda", default=False, description="Build train_mnist --device cuda")
    variant("openssl", default=True, description="Authenticate the ranks of a job")
    variant("static", default=False, description="Build libdist.a too")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hwloc@2:")
    depends_on("jansson")
    depends_on("zlib-api")
    depends_on("mpi", when="+mpi")
    depends_on("ucx", when="+ucx")
    depends_on("cuda", when="+cuda")
    depends_on("openssl@3:", when="+openssl")

    def configure_args(self):
        spec = self.spec
        args = ["--with-gloo=no", "--with-cblas=no"]
        args += self.enable_or_disable("static")
        args += ["--with-ucx=" + ("yes" if "+ucx" in spec else "no")]
        args += ["--with-openssl=" + ("yes" if "+openssl" in spec else "no")]
        args += ["--with-mpi=" + (spec["mpi"].prefix if "+mpi" in spec else "no")]
        args += ["--with-cuda=" + (spec["cuda"].prefix if "+cuda" in spec else "no")]
        return args
