! SPDX-License-Identifier: BSD-3-Clause
! Every collective that libdist_mpi.so serves, in one form: included once for each form
! (preload_fortran.F90). CALL makes the names of the calls, which end with the arguments REST.
  subroutine ROUTINE
    integer :: i, r

    form = FORM
    call CALL(barrier)(comm, REST)
    call FINISH

    a = rank + 1
    b = -1
    call CALL(allreduce)(a, b, m, MPI_INTEGER, MPI_SUM, comm, REST)
    call FINISH
    call check('allreduce', all(b(1:m) == n * (n + 1) / 2) .and. b(m + 1) == -1)

    a = rank
    call CALL(bcast)(a, m, MPI_INTEGER, root, comm, REST)
    call FINISH
    call check('bcast', all(a(1:m) == root) .and. a(m + 1) == rank)

    a = rank
    b = -1
    call CALL(reduce)(a, b, m, MPI_INTEGER, MPI_MAX, root, comm, REST)
    call FINISH
    call check('reduce', all(b(1:m) == merge(root, -1, rank == root)))

    call CALL(allgather)(a, m, MPI_INTEGER, b, m, MPI_INTEGER, comm, REST)
    call FINISH
    call check('allgather', all(b(1:n * m) == [((r, i = 1, m), r = 0, n - 1)]))

    b = -1
    call CALL(allgatherv)(a, rank + 1, MPI_INTEGER, b, counts, displs, MPI_INTEGER, comm, REST)
    call FINISH
    call check('allgatherv', in_blocks(b, 1, 0) .and. count(b >= 0) == n * (n + 1) / 2)

    a = [(i + rank, i = 1, size(a))]
    call CALL(reduce_scatter)(a, b, counts, MPI_INTEGER, MPI_SUM, comm, REST)
    call FINISH
    call check('reduce_scatter', all(b(1:rank + 1) == &
               [(n * i + n * (n - 1) / 2, i = rank * (rank + 1) / 2 + 1, (rank + 1) * (rank + 2) / 2)]))

    call CALL(reduce_scatter_block)(a, b, m, MPI_INTEGER, MPI_SUM, comm, REST)
    call FINISH
    call check('reduce_scatter_block', all(b(1:m) == &
               [(n * i + n * (n - 1) / 2, i = rank * m + 1, (rank + 1) * m)]))

    a(1:n * m) = [((100 * rank + r, i = 1, m), r = 0, n - 1)]
    call CALL(alltoall)(a, m, MPI_INTEGER, b, m, MPI_INTEGER, comm, REST)
    call FINISH
    call check('alltoall', all(b(1:n * m) == [((100 * r + rank, i = 1, m), r = 0, n - 1)]))

    b = -1
    do r = 0, n - 1
      a(displs(r) + 1:displs(r) + counts(r)) = 100 * rank + r
    end do
    call CALL(alltoallv)(a, counts, displs, MPI_INTEGER, b, own, displs, MPI_INTEGER, comm, REST)
    call FINISH
    call check('alltoallv', all(b == [(merge(100 * ((i - 1) / (n + 1)) + rank, -1, &
               mod(i - 1, n + 1) <= rank .and. i <= n * (n + 1)), i = 1, size(b))]))

    a = rank
    b = -1
    call CALL(gather)(a, m, MPI_INTEGER, b, m, MPI_INTEGER, root, comm, REST)
    call FINISH
    if (rank == root) call check('gather', all(b(1:n * m) == [((r, i = 1, m), r = 0, n - 1)]))

    b = -1
    call CALL(gatherv)(a, rank + 1, MPI_INTEGER, b, counts, displs, MPI_INTEGER, root, comm, REST)
    call FINISH
    if (rank == root) call check('gatherv', in_blocks(b, 1, 0))
    if (rank /= root) call check('gatherv', all(b == -1))

    a = 0
    if (rank == root) a(1:n * m) = [((r, i = 1, m), r = 0, n - 1)]
    call CALL(scatter)(a, m, MPI_INTEGER, b, m, MPI_INTEGER, root, comm, REST)
    call FINISH
    call check('scatter', all(b(1:m) == rank))

    b = -1
    if (rank == root) a = [((i - 1) / (n + 1), i = 1, size(a))]
    call CALL(scatterv)(a, counts, displs, MPI_INTEGER, b, rank + 1, MPI_INTEGER, root, comm, REST)
    call FINISH
    call check('scatterv', all(b(1:rank + 1) == rank) .and. b(rank + 2) == -1)
  end subroutine
#undef CALL
#undef REST
#undef FINISH
#undef ROUTINE
#undef FORM
