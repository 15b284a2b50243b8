// Records MPI calls, by the profiling interface: each writes an event and calls PMPI's function. Ranks in events are
// those of MPI_COMM_WORLD; -1: MPI_PROC_NULL.
#define DAGC_RECORD_MPI  // the functions themselves
#include <mpi.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "log.hpp"

using dagc::record::Event;

namespace {

template <class Handle>
long long number(Handle handle) {
  return static_cast<long long>((std::intptr_t)handle);
}

const std::vector<int>& members(MPI_Comm comm) {
  static std::map<long long, std::vector<int>>& known = *new std::map<long long, std::vector<int>>;
  std::vector<int>& world = known[number(comm)];
  if (!world.empty()) return world;
  int size = 0;
  MPI_Group group, all;
  PMPI_Comm_size(comm, &size);
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &all);
  std::vector<int> own(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) own[static_cast<std::size_t>(i)] = i;
  world.resize(own.size());
  PMPI_Group_translate_ranks(group, size, own.data(), all, world.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&all);
  return world;
}

int world_rank(MPI_Comm comm, int rank) {
  if (rank == MPI_PROC_NULL) return -1;
  const std::vector<int>& all = members(comm);
  return rank >= 0 && rank < static_cast<int>(all.size()) ? all[static_cast<std::size_t>(rank)] : rank;
}

std::string list(MPI_Comm comm) {
  std::string out;
  for (const int rank : members(comm)) out += (out.empty() ? "" : ", ") + std::to_string(rank);
  return "[" + out + "]";
}

// Blocks of memory in their order: bytes from the buffer, and sizes; neighbours are one.
using Blocks = std::vector<std::pair<long long, long long>>;
constexpr std::size_t kMostBlocks = 1 << 20;

void add(Blocks& all, const Blocks& some, long long at, long long count, long long stride) {
  if (count > 0 && some.size() == 1 && some[0].second == stride) {
    add(all, {{some[0].first, count * stride}}, at, 1, 0);
    return;
  }
  for (long long i = 0; i < count && all.size() <= kMostBlocks; ++i)
    for (const auto& [begin, bytes] : some) {
      const long long from = at + i * stride + begin;
      if (!all.empty() && all.back().first + all.back().second == from)
        all.back().second += bytes;
      else if (bytes != 0)
        all.emplace_back(from, bytes);
    }
}

long long extent_of(MPI_Datatype type) {
  MPI_Aint low = 0, extent = 0;
  PMPI_Type_get_extent(type, &low, &extent);
  return extent;
}

// Adds the blocks of one element of a type, whose basic type is `of`: "" at first, "MPI_BYTE" for several. False for a
// type that no call makes of others, such as one of a file.
bool add_blocks(MPI_Datatype type, Blocks& all, std::string& of);

// Those of a type that is made of others, by what it was made with.
bool add_parts(int combiner, const std::vector<int>& n, const std::vector<MPI_Aint>& at,
               const std::vector<MPI_Datatype>& types, Blocks& all, std::string& of) {
  Blocks one;
  if (combiner != MPI_COMBINER_STRUCT && !add_blocks(types[0], one, of)) return false;
  const long long extent = extent_of(types[0]);
  const auto counted = [&](std::size_t i) { return static_cast<std::size_t>(n[i]); };
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      add(all, one, 0, 1, 0);
      return true;
    case MPI_COMBINER_CONTIGUOUS:
      add(all, one, 0, n[0], extent);
      return true;
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR:
      for (long long i = 0; i < n[0]; ++i)
        add(all, one, i * (combiner == MPI_COMBINER_VECTOR ? n[2] * extent : at[0]), n[1], extent);
      return true;
    case MPI_COMBINER_INDEXED:
      for (std::size_t i = 1; i <= counted(0); ++i) add(all, one, n[counted(0) + i] * extent, n[i], extent);
      return true;
    case MPI_COMBINER_HINDEXED:
      for (std::size_t i = 0; i < counted(0); ++i) add(all, one, at[i], n[i + 1], extent);
      return true;
    case MPI_COMBINER_INDEXED_BLOCK:
      for (std::size_t i = 0; i < counted(0); ++i) add(all, one, n[i + 2] * extent, n[1], extent);
      return true;
    case MPI_COMBINER_HINDEXED_BLOCK:
      for (std::size_t i = 0; i < counted(0); ++i) add(all, one, at[i], n[1], extent);
      return true;
    case MPI_COMBINER_STRUCT:
      for (std::size_t i = 0; i < counted(0); ++i) {
        Blocks part;
        if (!add_blocks(types[i], part, of)) return false;
        add(all, part, at[i], n[i + 1], extent_of(types[i]));
      }
      return true;
    case MPI_COMBINER_SUBARRAY: {
      const std::size_t dims = counted(0);
      const bool last_first = n[1 + 3 * dims] == MPI_ORDER_C;  // which dimension is contiguous
      long long stride = extent;
      for (std::size_t d = 0; d < dims; ++d) {
        const std::size_t i = 1 + (last_first ? dims - 1 - d : d);
        Blocks next;
        add(next, one, n[i + 2 * dims] * stride, n[i + dims], stride);
        one.swap(next);
        stride *= n[i];
      }
      add(all, one, 0, 1, 0);
      return true;
    }
    default:
      return false;
  }
}

bool add_blocks(MPI_Datatype type, Blocks& all, std::string& of) {
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (combiner == MPI_COMBINER_NAMED) {
    char name[MPI_MAX_OBJECT_NAME];
    int length = 0, size = 0;
    PMPI_Type_get_name(type, name, &length);
    PMPI_Type_size(type, &size);
    const std::string own(name, static_cast<std::size_t>(length));
    of = of.empty() || of == own ? own : "MPI_BYTE";
    add(all, {{0, size}}, 0, 1, 0);
    return true;
  }
  if (types == 0) return false;
  std::vector<int> n(static_cast<std::size_t>(integers));
  std::vector<MPI_Aint> at(static_cast<std::size_t>(addresses));
  std::vector<MPI_Datatype> made(static_cast<std::size_t>(types));
  PMPI_Type_get_contents(type, integers, addresses, types, n.data(), at.data(), made.data());
  const bool good = add_parts(combiner, n, at, made, all, of);
  for (MPI_Datatype& one : made) {
    PMPI_Type_get_envelope(one, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED) PMPI_Type_free(&one);
  }
  return good;
}

// What a message has of its buffer, `first` bytes from there: `bytes` in all, as one block; or as `rows`: bytes of a row,
// rows of a plane and bytes from one to the next, planes and bytes from one to the next. `type`: the basic type;
// "derived" for another form.
struct Layout {
  std::string type;
  long long first = 0, bytes = 0;
  std::vector<long long> rows;
  bool whole() const { return type != "derived" && rows.empty() && first == 0; }
};

Layout layout_of(long long count, MPI_Datatype type) {
  Layout out;
  Blocks one, all;
  int size = 0;
  PMPI_Type_size(type, &size);
  out.bytes = count * size;
  const bool known = add_blocks(type, one, out.type);
  add(all, one, 0, count, extent_of(type));
  if (out.bytes == 0) return out;
  std::size_t in_plane = 1;  // rows
  const auto distance = [&](std::size_t i) { return all[i].first - all[i - 1].first; };
  while (in_plane < all.size() && distance(in_plane) == distance(1)) ++in_plane;
  const long long pitch = all.size() > 1 ? distance(1) : 0;
  const std::size_t planes = all.size() / in_plane;
  const long long plane = planes > 1 ? all[in_plane].first - all[0].first : 0;
  bool regular = known && all.size() <= kMostBlocks;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const long long place = static_cast<long long>(i / in_plane) * plane + static_cast<long long>(i % in_plane) * pitch;
    regular = regular && all[i] == std::make_pair(all[0].first + place, all[0].second);
  }
  if (!regular || pitch < 0 || plane < 0 || planes * in_plane != all.size()) {
    out.type = "derived";
    return out;
  }
  out.first = all[0].first;
  if (all.size() > 1)
    out.rows = {all[0].second, static_cast<long long>(in_plane), pitch, static_cast<long long>(planes), plane};
  return out;
}

std::string operator_of(MPI_Op op) {
  if (op == MPI_SUM) return "sum";
  if (op == MPI_PROD) return "prod";
  if (op == MPI_MIN) return "min";
  if (op == MPI_MAX) return "max";
  return "other";
}

void message(Event& e, const void* memory, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, bool sends) {
  const Layout layout = layout_of(count, type);
  const char* const begin = static_cast<const char*>(memory) + layout.first;
  e.add("buf", static_cast<const void*>(begin)).add("bytes", layout.bytes).add("type", layout.type);
  std::string rows;
  for (const long long one : layout.rows) rows += (rows.empty() ? "" : ", ") + std::to_string(one);
  if (!rows.empty()) e.raw("rows", "[" + rows + "]");
  if (sends && rows.empty() && layout.type != "derived" && !dagc::record::on_device(begin))
    e.given(begin, static_cast<std::size_t>(layout.bytes));
  e.add("peer", world_rank(comm, peer)).add("tag", tag).add("comm", number(comm));
}

void requests(Event& e, int count, const MPI_Request* all) {
  std::string out;
  for (int i = 0; i < count; ++i)
    if (all[i] != MPI_REQUEST_NULL) out += (out.empty() ? "" : ", ") + std::to_string(number(all[i]));
  e.raw("reqs", "[" + out + "]");
}

void collective(Event& e, const char* name, const void* send, const void* receive, long long count, MPI_Datatype type,
                MPI_Comm comm, const std::string& op = "", int root = -1) {
  const Layout layout = layout_of(count, type);
  const void* const from = send == MPI_IN_PLACE ? receive : send;
  e.add("op", std::string(name)).add("recv", receive).add("send", from).add("bytes", layout.bytes);
  e.add("type", layout.whole() ? layout.type : "derived");
  if (layout.whole() && !dagc::record::on_device(from)) e.given(from, static_cast<std::size_t>(layout.bytes));
  e.add("operator", op).add("root", root < 0 ? -1 : world_rank(comm, root)).raw("ranks", list(comm));
}

// A collective whose parts are messages: of each rank of the communicator, what is sent to it and received from it.
class Parts {
 public:
  explicit Parts(MPI_Comm comm) : comm_(comm), ranks_(static_cast<int>(members(comm).size())) {
    PMPI_Comm_rank(comm, &rank_);
  }
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  void receive(void* memory, long long at, int count, MPI_Datatype type, int peer) {
    add(memory, at, count, type, peer, false);
  }
  void send(const void* memory, long long at, int count, MPI_Datatype type, int peer) {
    add(memory, at, count, type, peer, true);
  }
  void complete(Event& e) const {
    std::string out;
    for (int i = 1; i <= parts_; ++i) out += (i > 1 ? ", -" : "-") + std::to_string(i);
    e.raw("reqs", "[" + out + "]");
  }

 private:
  static constexpr int kTag = -1000;  // which no message of the application has

  // `at`: in elements of the type.
  void add(const void* memory, long long at, int count, MPI_Datatype type, int peer, bool sends) {
    if (count == 0) return;
    Event e(sends ? "send" : "recv");
    message(e, static_cast<const char*>(memory) + at * extent_of(type), count, type, peer, kTag, comm_, sends);
    e.raw("reqs", "[-" + std::to_string(++parts_) + "]");
  }

  MPI_Comm comm_;
  int ranks_, rank_ = 0, parts_ = 0;
};

// The counts and places of a collective with one count.
struct Equal {
  int count;
  int operator[](int) const { return count; }
};
struct InTurn {
  int count;
  long long operator[](int rank) const { return static_cast<long long>(rank) * count; }
};

template <class Counts, class Places>
void gathered(Parts& parts, const void* send, int send_count, MPI_Datatype send_type, void* receive, Counts counts,
              Places places, MPI_Datatype type, int root) {
  if (root < 0 || parts.rank() == root)
    for (int from = 0; from < parts.ranks(); ++from)
      if (send != MPI_IN_PLACE || from != parts.rank()) parts.receive(receive, places[from], counts[from], type, from);
  for (int to = 0; to < parts.ranks(); ++to) {
    if (root >= 0 && to != root) continue;
    if (send != MPI_IN_PLACE)
      parts.send(send, 0, send_count, send_type, to);
    else if (to != parts.rank())
      parts.send(receive, places[parts.rank()], counts[parts.rank()], type, to);
  }
}

template <class Counts, class Places>
void scattered(Parts& parts, const void* send, Counts counts, Places places, MPI_Datatype send_type, void* receive,
               int count, MPI_Datatype type, int root) {
  if (receive != MPI_IN_PLACE) parts.receive(receive, 0, count, type, root);
  if (parts.rank() != root) return;
  for (int to = 0; to < parts.ranks(); ++to)
    if (receive != MPI_IN_PLACE || to != root) parts.send(send, places[to], counts[to], send_type, to);
}

void result(Event& e, const void* memory, long long count, MPI_Datatype type) {
  const Layout layout = layout_of(count, type);
  if (memory != nullptr && memory != MPI_IN_PLACE && layout.whole() && !dagc::record::on_device(memory))
    e.result(memory, static_cast<std::size_t>(layout.bytes));
}

}  // namespace

extern "C" {

static void joined() {
  int rank = 0, size = 1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  dagc::record::rank(rank, size);
}

int MPI_Init(int* argc, char*** argv) {
  const int error = PMPI_Init(argc, argv);
  joined();
  return error;
}
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int error = PMPI_Init_thread(argc, argv, required, provided);
  joined();
  return error;
}
int MPI_Finalize() {
  { Event("finalize"); }
  return PMPI_Finalize();
}

#define DAGC_SEND(name)                                                                                       \
  int MPI_##name(const void* buf, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {           \
    Event e("send");                                                                                          \
    message(e, buf, count, type, peer, tag, comm, true);                                                      \
    e.raw("reqs", "[]");                                                                                      \
    return PMPI_##name(buf, count, type, peer, tag, comm);                                                    \
  }
#define DAGC_ISEND(name)                                                                                      \
  int MPI_##name(const void* buf, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,             \
                 MPI_Request* request) {                                                                      \
    Event e("send");                                                                                          \
    message(e, buf, count, type, peer, tag, comm, true);                                                      \
    const int error = PMPI_##name(buf, count, type, peer, tag, comm, request);                                \
    requests(e, 1, request);                                                                                  \
    return error;                                                                                             \
  }
DAGC_SEND(Send)
DAGC_SEND(Ssend)
DAGC_SEND(Rsend)
DAGC_SEND(Bsend)
DAGC_ISEND(Isend)
DAGC_ISEND(Issend)

// The source and the tag where any was asked for, known after the message.
static void received(Event& e, MPI_Comm comm, const MPI_Status& status, int source, int tag) {
  if (source == MPI_ANY_SOURCE) e.add("source", world_rank(comm, status.MPI_SOURCE));
  if (tag == MPI_ANY_TAG) e.add("got", status.MPI_TAG);
}

int MPI_Recv(void* buf, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Status* status) {
  Event e("recv");
  MPI_Status own;
  message(e, buf, count, type, peer, tag, comm, false);
  e.raw("reqs", "[]");
  const int error = PMPI_Recv(buf, count, type, peer, tag, comm, &own);
  received(e, comm, own, peer, tag);
  if (status != MPI_STATUS_IGNORE) *status = own;
  return error;
}
int MPI_Irecv(void* buf, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  Event e("recv");
  message(e, buf, count, type, peer, tag, comm, false);
  const int error = PMPI_Irecv(buf, count, type, peer, tag, comm, request);
  requests(e, 1, request);
  return error;
}
// As a receive and a send that are under way together: two events, and a wait for both.
int MPI_Sendrecv(const void* out, int out_count, MPI_Datatype out_type, int to, int out_tag, void* in, int in_count,
                 MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status* status) {
  {
    Event e("recv");
    message(e, in, in_count, in_type, from, in_tag, comm, false);
    e.raw("reqs", "[-1]");
  }
  {
    Event e("send");
    message(e, out, out_count, out_type, to, out_tag, comm, true);
    e.raw("reqs", "[-2]");
  }
  Event e("complete");
  e.raw("reqs", "[-1, -2]");
  return PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag, comm, status);
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  Event e("complete");
  requests(e, 1, request);
  return PMPI_Wait(request, status);
}
int MPI_Waitall(int count, MPI_Request all[], MPI_Status statuses[]) {
  Event e("complete");
  requests(e, count, all);
  return PMPI_Waitall(count, all, statuses);
}
int MPI_Waitany(int count, MPI_Request all[], int* index, MPI_Status* status) {
  Event e("complete");
  const std::vector<MPI_Request> before(all, all + count);
  const int error = PMPI_Waitany(count, all, index, status);
  if (*index != MPI_UNDEFINED)
    requests(e, 1, &before[static_cast<std::size_t>(*index)]);
  else
    e.raw("reqs", "[]");
  return error;
}
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  const MPI_Request before = *request;
  const int error = PMPI_Test(request, flag, status);
  if (*flag == 0) return error;  // how often it was asked differs between runs
  Event e("complete");
  requests(e, 1, &before);
  return error;
}
int MPI_Testall(int count, MPI_Request all[], int* flag, MPI_Status statuses[]) {
  const std::vector<MPI_Request> before(all, all + count);
  const int error = PMPI_Testall(count, all, flag, statuses);
  if (*flag == 0) return error;
  Event e("complete");
  requests(e, count, before.data());
  return error;
}

int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  Event e("collective");
  collective(e, "allreduce", send, receive, count, type, comm, operator_of(op));
  const int error = PMPI_Allreduce(send, receive, count, type, op, comm);
  result(e, receive, count, type);
  return error;
}
int MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  Event e("collective");
  collective(e, "reduce", send, receive, count, type, comm, operator_of(op), root);
  const int error = PMPI_Reduce(send, receive, count, type, op, root, comm);
  result(e, receive, count, type);
  return error;
}
int MPI_Bcast(void* memory, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  Event e("collective");
  collective(e, "bcast", memory, memory, count, type, comm, "", root);
  const int error = PMPI_Bcast(memory, count, type, root, comm);
  result(e, memory, count, type);
  return error;
}
int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* receive, int count, MPI_Datatype type,
                  MPI_Comm comm) {
  if (send == MPI_IN_PLACE) {
    Parts parts(comm);
    gathered(parts, send, send_count, send_type, receive, Equal{count}, InTurn{count}, type, -1);
    Event e("complete");
    parts.complete(e);
    return PMPI_Allgather(send, send_count, send_type, receive, count, type, comm);
  }
  Event e("collective");
  collective(e, "allgather", send, receive, send_count, send_type, comm);
  const int error = PMPI_Allgather(send, send_count, send_type, receive, count, type, comm);
  result(e, receive, count * static_cast<long long>(members(comm).size()), type);
  return error;
}
int MPI_Allgatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive, const int counts[],
                   const int places[], MPI_Datatype type, MPI_Comm comm) {
  Parts parts(comm);
  gathered(parts, send, send_count, send_type, receive, counts, places, type, -1);
  Event e("complete");
  parts.complete(e);
  return PMPI_Allgatherv(send, send_count, send_type, receive, counts, places, type, comm);
}
int MPI_Gather(const void* send, int send_count, MPI_Datatype send_type, void* receive, int count, MPI_Datatype type,
               int root, MPI_Comm comm) {
  Parts parts(comm);
  gathered(parts, send, send_count, send_type, receive, Equal{count}, InTurn{count}, type, root);
  Event e("complete");
  parts.complete(e);
  return PMPI_Gather(send, send_count, send_type, receive, count, type, root, comm);
}
int MPI_Gatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive, const int counts[],
                const int places[], MPI_Datatype type, int root, MPI_Comm comm) {
  Parts parts(comm);
  gathered(parts, send, send_count, send_type, receive, counts, places, type, root);
  Event e("complete");
  parts.complete(e);
  return PMPI_Gatherv(send, send_count, send_type, receive, counts, places, type, root, comm);
}
int MPI_Scatter(const void* send, int send_count, MPI_Datatype send_type, void* receive, int count, MPI_Datatype type,
                int root, MPI_Comm comm) {
  Parts parts(comm);
  scattered(parts, send, Equal{send_count}, InTurn{send_count}, send_type, receive, count, type, root);
  Event e("complete");
  parts.complete(e);
  return PMPI_Scatter(send, send_count, send_type, receive, count, type, root, comm);
}
int MPI_Scatterv(const void* send, const int counts[], const int places[], MPI_Datatype send_type, void* receive,
                 int count, MPI_Datatype type, int root, MPI_Comm comm) {
  Parts parts(comm);
  scattered(parts, send, counts, places, send_type, receive, count, type, root);
  Event e("complete");
  parts.complete(e);
  return PMPI_Scatterv(send, counts, places, send_type, receive, count, type, root, comm);
}
int MPI_Alltoallv(const void* send, const int send_counts[], const int send_places[], MPI_Datatype send_type,
                  void* receive, const int counts[], const int places[], MPI_Datatype type, MPI_Comm comm) {
  if (send == MPI_IN_PLACE) {
    Event("unsupported").add("call", "MPI_Alltoallv in place");
  } else {
    Parts parts(comm);
    for (int from = 0; from < parts.ranks(); ++from) parts.receive(receive, places[from], counts[from], type, from);
    for (int to = 0; to < parts.ranks(); ++to) parts.send(send, send_places[to], send_counts[to], send_type, to);
    Event e("complete");
    parts.complete(e);
  }
  return PMPI_Alltoallv(send, send_counts, send_places, send_type, receive, counts, places, type, comm);
}
int MPI_Alltoall(const void* send, int send_count, MPI_Datatype send_type, void* receive, int count, MPI_Datatype type,
                 MPI_Comm comm) {
  Event e("collective");
  const long long ranks = static_cast<long long>(members(comm).size());
  collective(e, "alltoall", send, receive, send_count * ranks, send_type, comm);
  return PMPI_Alltoall(send, send_count, send_type, receive, count, type, comm);
}
int MPI_Barrier(MPI_Comm comm) {
  Event e("collective");
  collective(e, "barrier", nullptr, nullptr, 0, MPI_BYTE, comm);
  return PMPI_Barrier(comm);
}

}  // extern "C"

// What no .dag expresses: recorded by its name. The functions have the parameters that the MPI declares: each symbol is
// resolved, when the program is loaded, to a function that is made of the declaration.
namespace {

template <class Name, class Function>
struct Unsupported;
template <class Name, class... Arguments>
struct Unsupported<Name, int(Arguments...)> {
  static int call(Arguments... arguments) {
    Event("unsupported").add("call", Name::text);
    return Name::call(arguments...);
  }
};

}  // namespace

// A resolver is called before a sanitizer has begun.
#define DAGC_UNSUPPORTED(name)                                                                                    \
  namespace {                                                                                                     \
  struct name##Name {                                                                                             \
    static constexpr const char* text = "MPI_" #name;                                                             \
    static constexpr auto call = &PMPI_##name;                                                                    \
  };                                                                                                              \
  }                                                                                                               \
  extern "C" __attribute__((no_sanitize("thread", "address", "undefined"))) decltype(&PMPI_##name) dagc_##name() { \
    return &Unsupported<name##Name, decltype(PMPI_##name)>::call;                                                 \
  }                                                                                                               \
  extern "C" decltype(PMPI_##name) MPI_##name __attribute__((ifunc("dagc_" #name)));
DAGC_UNSUPPORTED(Accumulate) DAGC_UNSUPPORTED(Alltoallw) DAGC_UNSUPPORTED(Bsend_init)
DAGC_UNSUPPORTED(Compare_and_swap) DAGC_UNSUPPORTED(Exscan) DAGC_UNSUPPORTED(Fetch_and_op) DAGC_UNSUPPORTED(Get)
DAGC_UNSUPPORTED(Get_accumulate) DAGC_UNSUPPORTED(Iallgather) DAGC_UNSUPPORTED(Iallgatherv)
DAGC_UNSUPPORTED(Iallreduce) DAGC_UNSUPPORTED(Ialltoall) DAGC_UNSUPPORTED(Ialltoallv) DAGC_UNSUPPORTED(Ialltoallw)
DAGC_UNSUPPORTED(Ibarrier) DAGC_UNSUPPORTED(Ibcast) DAGC_UNSUPPORTED(Ibsend) DAGC_UNSUPPORTED(Iexscan)
DAGC_UNSUPPORTED(Igather) DAGC_UNSUPPORTED(Igatherv) DAGC_UNSUPPORTED(Imrecv) DAGC_UNSUPPORTED(Ineighbor_allgather)
DAGC_UNSUPPORTED(Ineighbor_allgatherv) DAGC_UNSUPPORTED(Ineighbor_alltoall) DAGC_UNSUPPORTED(Ineighbor_alltoallv)
DAGC_UNSUPPORTED(Ineighbor_alltoallw) DAGC_UNSUPPORTED(Ireduce) DAGC_UNSUPPORTED(Ireduce_scatter)
DAGC_UNSUPPORTED(Ireduce_scatter_block) DAGC_UNSUPPORTED(Irsend) DAGC_UNSUPPORTED(Iscan) DAGC_UNSUPPORTED(Iscatter)
DAGC_UNSUPPORTED(Iscatterv) DAGC_UNSUPPORTED(Mrecv) DAGC_UNSUPPORTED(Neighbor_allgather)
DAGC_UNSUPPORTED(Neighbor_allgatherv) DAGC_UNSUPPORTED(Neighbor_alltoall) DAGC_UNSUPPORTED(Neighbor_alltoallv)
DAGC_UNSUPPORTED(Neighbor_alltoallw) DAGC_UNSUPPORTED(Put) DAGC_UNSUPPORTED(Raccumulate) DAGC_UNSUPPORTED(Recv_init)
DAGC_UNSUPPORTED(Reduce_scatter) DAGC_UNSUPPORTED(Reduce_scatter_block) DAGC_UNSUPPORTED(Rget) DAGC_UNSUPPORTED(Rput)
DAGC_UNSUPPORTED(Rsend_init) DAGC_UNSUPPORTED(Scan) DAGC_UNSUPPORTED(Send_init) DAGC_UNSUPPORTED(Sendrecv_replace)
DAGC_UNSUPPORTED(Ssend_init) DAGC_UNSUPPORTED(Start) DAGC_UNSUPPORTED(Startall) DAGC_UNSUPPORTED(Testany)
DAGC_UNSUPPORTED(Testsome) DAGC_UNSUPPORTED(Waitsome) DAGC_UNSUPPORTED(Win_allocate)
DAGC_UNSUPPORTED(Win_allocate_shared) DAGC_UNSUPPORTED(Win_create) DAGC_UNSUPPORTED(Win_create_dynamic)
