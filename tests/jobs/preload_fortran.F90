! SPDX-License-Identifier: BSD-3-Clause
! A Fortran MPI program that does not use libdist. -DKIND=0: mpif.h, 1: module mpi, 2: mpi_f08.
! -DLIBRARY: a subroutine for C. -DPERSISTENT_MPI or -DPERSISTENT_MPIX: the prefix of persistent
! collectives, if the MPI has them. -DSECTIONS: nonblocking calls accept sections of arrays.
#if KIND == 2
#define COMM_TYPE type(MPI_Comm)
#define REQUEST_TYPE type(MPI_Request)
#define DATATYPE_TYPE type(MPI_Datatype)
#define OP_TYPE type(MPI_Op)
#else
#define COMM_TYPE integer
#define REQUEST_TYPE integer
#define DATATYPE_TYPE integer
#define OP_TYPE integer
#endif

module preload_fortran_calls
#if KIND == 2
  use mpi_f08
#ifdef PERSISTENT_MPIX
  use mpi_f08_ext
#endif
#elif KIND == 1
  use mpi
#endif
  implicit none
#if KIND == 0
  include 'mpif.h'
#endif

  integer, parameter :: m = 3           ! elements of a block, if all blocks have the same length
  integer, asynchronous, allocatable :: a(:), b(:)
  integer, allocatable :: counts(:), displs(:), own(:)
  COMM_TYPE :: comm
  REQUEST_TYPE :: request
  integer :: rank, n, root, ierr, wrong = 0
  character(len=12) :: form

contains

  subroutine check(name, good)
    character(len=*), intent(in) :: name
    logical, intent(in) :: good

    if (.not. good) then
      wrong = wrong + 1
      print *, 'rank ', rank, ': ', trim(form), ' ', name, ' is wrong'
    end if
  end subroutine

  ! True if every element of block r of `values` is first + step * r, for all ranks r.
  logical function in_blocks(values, step, first)
    integer, intent(in) :: values(:), step, first
    integer :: r

    in_blocks = .true.
    do r = 0, n - 1
      in_blocks = in_blocks .and. all(values(displs(r) + 1:displs(r) + counts(r)) == first + step * r)
    end do
  end function

#define CALL(name) mpi_/**/name
#define REST ierr
#define FINISH finish_blocking
#define ROUTINE collectives_blocking
#define FORM 'blocking'
#include "preload_fortran_collectives.F90"
  subroutine finish_blocking
  end subroutine

#define CALL(name) mpi_i/**/name
#define REST request, ierr
#define FINISH finish_nonblocking
#define ROUTINE collectives_nonblocking
#define FORM 'nonblocking'
#include "preload_fortran_collectives.F90"
  subroutine finish_nonblocking
    call mpi_wait(request, MPI_STATUS_IGNORE, ierr)
  end subroutine

#if defined(PERSISTENT_MPI) || defined(PERSISTENT_MPIX)
#ifdef PERSISTENT_MPI
#define CALL(name) mpi_/**/name/**/_init
#else
#define CALL(name) mpix_/**/name/**/_init
#endif
#define REST MPI_INFO_NULL, request, ierr
#define FINISH finish_persistent
#define ROUTINE collectives_persistent
#define FORM 'persistent'
#include "preload_fortran_collectives.F90"
  subroutine finish_persistent
    call mpi_start(request, ierr)
    call mpi_wait(request, MPI_STATUS_IGNORE, ierr)
    call mpi_request_free(request, ierr)
  end subroutine
#endif

  ! ---- reductions of Fortran's types, including types that libdist hands on to MPI ----

  subroutine types
    integer(8) :: long(2), longs(2)
    real :: short(2), shorts(2)
    double precision :: double(2), doubles(2), pair(2), pairs(2)
    complex :: z(2), zs(2)
    complex(kind(0d0)) :: w(2), ws(2)
    logical :: flag(2), flags(2)
    integer :: place(2), places(2)

    long = 5000000000_8 + rank
    call mpi_allreduce(long, longs, 2, MPI_INTEGER8, MPI_MAX, comm, ierr)
    call check('MPI_INTEGER8', all(longs == 5000000000_8 + n - 1))
    short = rank + 0.5
    call mpi_allreduce(short, shorts, 2, MPI_REAL, MPI_SUM, comm, ierr)
    call check('MPI_REAL', all(shorts == n * (n - 1) / 2 + 0.5 * n))
    double = rank + 1
    call mpi_allreduce(double, doubles, 2, MPI_DOUBLE_PRECISION, MPI_PROD, comm, ierr)
    call check('MPI_DOUBLE_PRECISION', all(doubles == gamma(n + 1d0)))
    z = cmplx(rank, -rank)
    call mpi_allreduce(z, zs, 2, MPI_COMPLEX, MPI_SUM, comm, ierr)
    call check('MPI_COMPLEX', all(zs == cmplx(n * (n - 1) / 2, -n * (n - 1) / 2)))
    w = cmplx(0, 1, kind(0d0))
    call mpi_allreduce(w, ws, 2, MPI_DOUBLE_COMPLEX, MPI_SUM, comm, ierr)
    call check('MPI_DOUBLE_COMPLEX', all(ws == cmplx(0, n, kind(0d0))))
    flag = [rank == 0, rank < n]
    call mpi_allreduce(flag, flags, 2, MPI_LOGICAL, MPI_LAND, comm, ierr)
    call check('MPI_LOGICAL', all(flags .eqv. [n == 1, .true.]))
    place = [-abs(rank - n / 2), rank]
    call mpi_allreduce(place, places, 1, MPI_2INTEGER, MPI_MAXLOC, comm, ierr)
    call check('MPI_2INTEGER', all(places == [0, n / 2]))
    pair = [abs(rank - n / 2) - 0.5d0, dble(rank)]
    call mpi_allreduce(pair, pairs, 1, MPI_2DOUBLE_PRECISION, MPI_MINLOC, comm, ierr)
    call check('MPI_2DOUBLE_PRECISION', all(pairs == [-0.5d0, dble(n / 2)]))
    call mpi_allreduce(w, ws, 2, MPI_DOUBLE_COMPLEX, MPI_PROD, comm, ierr)
    call check('a product of MPI_DOUBLE_COMPLEX', all(ws == cmplx(0, 1, kind(0d0))**n))
  end subroutine

  ! ---- a user-defined operation ----

#if KIND == 2
  subroutine add(in, inout, length, type)
    use, intrinsic :: iso_c_binding
    type(c_ptr), value :: in, inout
    integer :: length
    type(MPI_Datatype) :: type
    integer, pointer :: from(:), to(:)

    call c_f_pointer(in, from, [length])
    call c_f_pointer(inout, to, [length])
    to = to + from
  end subroutine
#else
  subroutine add(in, inout, length, type)
    integer :: length, type, in(length), inout(length)

    inout = inout + in
  end subroutine
#endif

  subroutine operation
    OP_TYPE :: op

    call mpi_op_create(add, .true., op, ierr)
    a = rank
    call mpi_allreduce(a, b, m, MPI_INTEGER, op, comm, ierr)
    call check('an operation', all(b(1:m) == n * (n - 1) / 2))
    call mpi_op_free(op, ierr)
  end subroutine

  ! ---- special addresses that only bindings recognize, and memory with gaps ----

  subroutine addresses
    integer(MPI_ADDRESS_KIND) :: address
    DATATYPE_TYPE :: type
    character(len=5) :: word

    a = rank
    call mpi_allreduce(MPI_IN_PLACE, a, m, MPI_INTEGER, MPI_SUM, comm, ierr)
    call check('MPI_IN_PLACE', all(a(1:m) == n * (n - 1) / 2))
    a = rank
    if (rank == root) then
      call mpi_gather(MPI_IN_PLACE, m, MPI_INTEGER, a, m, MPI_INTEGER, root, comm, ierr)
      call check('MPI_IN_PLACE at the root', all(a(1:n * m:m) == [(ierr, ierr = 0, n - 1)]))
    else
      call mpi_gather(a, m, MPI_INTEGER, b, m, MPI_INTEGER, root, comm, ierr)
    end if

    a = rank
    call mpi_get_address(a(2), address, ierr)
    call mpi_type_create_hindexed(1, [2], [address], MPI_INTEGER, type, ierr)
    call mpi_type_commit(type, ierr)
    call mpi_bcast(MPI_BOTTOM, 1, type, root, comm, ierr)
    call mpi_f_sync(a)
    call check('MPI_BOTTOM', all(a(1:4) == [rank, root, root, rank]))
    call mpi_type_free(type, ierr)

    a = rank
    call mpi_bcast(a(1:2 * m:2), m, MPI_INTEGER, root, comm, ierr)
    call check('a section', all(a(1:2 * m:2) == root) .and. all(a(2:2 * m:2) == rank))
#ifdef SECTIONS
    if (MPI_SUBARRAYS_SUPPORTED) then
      a = rank
      call mpi_ibcast(a(1:2 * m:2), m, MPI_INTEGER, root, comm, request, ierr)
      call mpi_wait(request, MPI_STATUS_IGNORE, ierr)
      call check('a section that is waited for', all(a(1:2 * m:2) == root) .and. all(a(2:2 * m:2) == rank))
    end if
#endif
    word = 'other'
    if (rank == root) word = 'right'
    call mpi_bcast(word, 5, MPI_CHARACTER, root, comm, ierr)
    call check('MPI_CHARACTER', word == 'right')
  end subroutine

  ! Prevents the compiler from keeping the buffer in registers.
  subroutine mpi_f_sync(buffer)
    integer, intent(inout) :: buffer(:)

    if (ierr == huge(ierr)) buffer = 0
  end subroutine

  ! ---- communicators ----

  subroutine communicators
    COMM_TYPE :: half, copy, ring
    integer :: members, value

    call mpi_comm_split(comm, mod(rank, 2), rank, half, ierr)
    call mpi_comm_size(half, members, ierr)
    call mpi_allreduce(1, value, 1, MPI_INTEGER, MPI_SUM, half, ierr)
    call check('a half', value == members .and. members == (n + 1 - mod(rank, 2)) / 2)
    call mpi_comm_dup(comm, copy, ierr)
    value = rank
    call mpi_bcast(value, 1, MPI_INTEGER, root, copy, ierr)
    call check('a duplicate', value == root)
    call mpi_cart_create(comm, 1, [n], [.true.], .false., ring, ierr)
    call mpi_reduce(rank, value, 1, MPI_INTEGER, MPI_MAX, 0, ring, ierr)
    call check('a ring', rank /= 0 .or. value == n - 1)
    call mpi_comm_free(half, ierr)
    call mpi_comm_free(copy, ierr)
    call mpi_comm_free(ring, ierr)
  end subroutine

  ! ---- waits and tests, of collectives and messages together ----

  subroutine begin_all(requests, in, out)
    REQUEST_TYPE, intent(out) :: requests(4)
    integer, intent(in), asynchronous :: in(4)
    integer, intent(inout), asynchronous :: out(4)

    call mpi_irecv(out(1), 1, MPI_INTEGER, mod(rank + n - 1, n), 7, comm, requests(1), ierr)
    call mpi_isend(in(1), 1, MPI_INTEGER, mod(rank + 1, n), 7, comm, requests(2), ierr)
    call mpi_iallreduce(in(3), out(3), 1, MPI_INTEGER, MPI_SUM, comm, requests(3), ierr)
    call mpi_iallreduce(in(4), out(4), 1, MPI_INTEGER, MPI_MAX, comm, requests(4), ierr)
  end subroutine

  subroutine wait_somehow(way, requests)
    integer, intent(in) :: way
    REQUEST_TYPE, intent(inout) :: requests(4)
    integer :: done, i, indices(4), some
    logical :: flag

    done = 0
    select case (way)
    case (1)
      call mpi_waitall(4, requests, MPI_STATUSES_IGNORE, ierr)
    case (2)
      do i = 1, 4
        call mpi_waitany(4, requests, some, MPI_STATUS_IGNORE, ierr)
      end do
    case (3)
      do while (done < 4)
        call mpi_waitsome(4, requests, some, indices, MPI_STATUSES_IGNORE, ierr)
        done = done + some
      end do
    case (4)
      flag = .false.
      do while (.not. flag)
        call mpi_testall(4, requests, flag, MPI_STATUSES_IGNORE, ierr)
      end do
    case (5)
      do while (done < 4)
        call mpi_testany(4, requests, some, flag, MPI_STATUS_IGNORE, ierr)
        if (flag) done = done + 1
      end do
    case (6)
      do while (done < 4)
        call mpi_testsome(4, requests, some, indices, MPI_STATUSES_IGNORE, ierr)
        done = done + some
      end do
    case default
      do i = 4, 1, -1
        flag = .false.
        do while (.not. flag)
          call mpi_test(requests(i), flag, MPI_STATUS_IGNORE, ierr)
        end do
      end do
    end select
  end subroutine

  subroutine waits
    REQUEST_TYPE :: requests(4)
    integer, asynchronous :: in(4), out(4)
    integer :: way

    form = 'waits'
    do way = 1, 7
      in = [rank, 0, 1, rank]
      out = -1
      call begin_all(requests, in, out)
      call wait_somehow(way, requests)
      call mpi_f_sync(out)
      call check('no. '//achar(48 + way), all(out == [mod(rank + n - 1, n), -1, n, n - 1]))
    end do
  end subroutine

  subroutine all_calls
    integer :: r

    comm = MPI_COMM_WORLD
    call mpi_comm_rank(comm, rank, ierr)
    call mpi_comm_size(comm, n, ierr)
    root = n - 1
    allocate (a(2 * n * max(n, m)), b(2 * n * max(n, m)), counts(0:n - 1), displs(0:n - 1), own(0:n - 1))
    counts = [(r + 1, r = 0, n - 1)]
    displs = [((n + 1) * r, r = 0, n - 1)]
    own = rank + 1
    call collectives_blocking
    call collectives_nonblocking
#if defined(PERSISTENT_MPI) || defined(PERSISTENT_MPIX)
    call collectives_persistent
#endif
    form = 'blocking'
    call types
    call operation
    call addresses
    call communicators
    call waits
    if (wrong > 0) call mpi_abort(comm, 1, ierr)
    deallocate (a, b, counts, displs, own)
  end subroutine
end module

#ifdef LIBRARY
subroutine preload_fortran() bind(C)
#else
program preload_fortran
#endif
  use preload_fortran_calls
  implicit none
  logical :: begun

  call mpi_initialized(begun, ierr)
  if (.not. begun) call mpi_init(ierr)
  call all_calls
  if (.not. begun) call mpi_finalize(ierr)
end
