/*
 * An echo service in C++, edge-triggered, with objects and threads of the language.
 *
 *   echoer serve CONFIG CORES
 *   echoer load CONFIG CORES CONNECTIONS BYTES SERVER
 */
#include <mtcp_epoll.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <arpa/inet.h>
#include <cerrno>
#include <csignal>

namespace {

std::atomic<bool> over(false);

[[noreturn]] void fail(const std::string &what)
{
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

class Loop;

class Handler {
public:
    virtual ~Handler() {}
    virtual void on_events(Loop &loop, uint32_t events) = 0;
};

class Loop {
public:
    explicit Loop(int core) : mctx(open(core)), epoll(mtcp_epoll_create1(mctx, 0))
    {
        if (epoll < 0)
            fail("mtcp_epoll_create1");
    }
    ~Loop()
    {
        handlers.clear();
        graves.clear();
        mtcp_close(mctx, epoll);
        mtcp_destroy_context(mctx);
    }
    Loop(const Loop &) = delete;
    Loop &operator=(const Loop &) = delete;

    void add(int sockid, std::unique_ptr<Handler> handler)
    {
        mtcp_epoll_event event{};
        event.events = MTCP_EPOLLIN | MTCP_EPOLLOUT | MTCP_EPOLLRDHUP | static_cast<uint32_t>(MTCP_EPOLLET);
        event.data.ptr = handler.get();
        if (mtcp_epoll_ctl(mctx, epoll, MTCP_EPOLL_CTL_ADD, sockid, &event) < 0)
            fail("mtcp_epoll_ctl");
        handlers[sockid] = std::move(handler);
    }

    /* The object lives until the events of this round are handled. */
    void drop(int sockid)
    {
        auto found = handlers.find(sockid);
        graves.push_back(std::move(found->second));
        handlers.erase(found);
        mtcp_close(mctx, sockid);
    }

    void round()
    {
        std::vector<mtcp_epoll_event> events(512);
        int count = mtcp_epoll_wait(mctx, epoll, events.data(), static_cast<int>(events.size()), -1);
        if (count < 0 && errno != EINTR)
            fail("mtcp_epoll_wait");
        for (int i = 0; i < count; i++)
            static_cast<Handler *>(events[static_cast<size_t>(i)].data.ptr)->on_events(*this, events[static_cast<size_t>(i)].events);
        graves.clear();
    }

    const mctx_t mctx;

private:
    static mctx_t open(int core)
    {
        mtcp_core_affinitize(core);
        mctx_t mctx = mtcp_create_context(core);
        if (mctx == nullptr)
            fail("mtcp_create_context");
        return mctx;
    }
    int epoll;
    std::unordered_map<int, std::unique_ptr<Handler>> handlers;
    std::deque<std::unique_ptr<Handler>> graves;
};

class Echo : public Handler {
public:
    explicit Echo(int id) : sockid(id) {}

    void on_events(Loop &loop, uint32_t events) override
    {
        if (events & (MTCP_EPOLLERR | MTCP_EPOLLHUP) || !move(loop.mctx))
            loop.drop(sockid);
    }

private:
    bool move(mctx_t mctx)
    {
        char bytes[6000];
        for (;;) {
            while (!waiting.empty()) {
                iovec piece = {&waiting[0], waiting.size()};
                int sent = mtcp_writev(mctx, sockid, &piece, 1);
                if (sent < 0)
                    return errno == EAGAIN;
                waiting.erase(0, static_cast<size_t>(sent));
            }
            iovec pieces[2] = {{bytes, 1000}, {bytes + 1000, 5000}};
            int got = mtcp_readv(mctx, sockid, pieces, 2);
            if (got < 0)
                return errno == EAGAIN;
            if (got == 0)
                return false;
            waiting.assign(bytes, static_cast<size_t>(got));
        }
    }
    int sockid;
    std::string waiting;
};

class Listener : public Handler {
public:
    explicit Listener(Loop &loop) : sockid(mtcp_socket(loop.mctx, AF_INET, SOCK_STREAM, IPPROTO_TCP))
    {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_ANY);
        at.sin_port = htons(7);
        if (sockid < 0 || mtcp_setsock_nonblock(loop.mctx, sockid) < 0 || mtcp_bind(loop.mctx, sockid, reinterpret_cast<sockaddr *>(&at), sizeof at) < 0
            || mtcp_listen(loop.mctx, sockid, 1024) < 0)
            fail("listener");
    }
    void on_events(Loop &loop, uint32_t) override
    {
        sockaddr_in from{};
        socklen_t len = sizeof from;
        int accepted;
        while ((accepted = mtcp_accept(loop.mctx, sockid, reinterpret_cast<sockaddr *>(&from), &len)) >= 0) {
            mtcp_setsock_nonblock(loop.mctx, accepted);
            loop.add(accepted, std::unique_ptr<Handler>(new Echo(accepted)));
        }
        if (errno != EAGAIN)
            fail("mtcp_accept");
    }
    const int sockid;
};

class Caller : public Handler {
public:
    Caller(int id, size_t length, int &open) : sockid(id), length(length), open(open) { ++open; }

    void on_events(Loop &loop, uint32_t events) override
    {
        int error = 0;
        socklen_t len = sizeof error;
        if (events & MTCP_EPOLLERR && mtcp_getsockopt(loop.mctx, sockid, SOL_SOCKET, SO_ERROR, &error, &len) == 0) {
            errno = error;
            fail("connection");
        }
        talk(loop.mctx);
        if (received == length) {
            --open;
            loop.drop(sockid);
        }
    }

private:
    static char at(size_t place) { return static_cast<char>(place % 251); }

    void talk(mctx_t mctx)
    {
        char bytes[3000];
        while (sent < length) {
            size_t len = std::min(sizeof bytes, length - sent);
            for (size_t i = 0; i < len; i++)
                bytes[i] = at(sent + i);
            ssize_t count = mtcp_write(mctx, sockid, bytes, len);
            if (count < 0 && (errno == EAGAIN || errno == ENOTCONN))
                break;
            if (count < 0)
                fail("mtcp_write");
            sent += static_cast<size_t>(count);
        }
        for (;;) {
            ssize_t count = mtcp_read(mctx, sockid, bytes, sizeof bytes);
            if (count < 0 && (errno == EAGAIN || errno == ENOTCONN))
                return;
            if (count <= 0)
                fail("mtcp_read");
            for (ssize_t i = 0; i < count; i++)
                if (bytes[i] != at(received++))
                    fail("a wrong byte");
            if (received == length)
                return;
        }
    }
    int sockid;
    size_t length, sent = 0, received = 0;
    int &open;
};

void serve(int core)
{
    Loop loop(core);
    std::unique_ptr<Listener> listener(new Listener(loop));
    int sockid = listener->sockid;
    loop.add(sockid, std::move(listener));
    std::printf("ready %d\n", core);
    std::fflush(stdout);
    while (!over)
        loop.round();
}

void load(int core, int connections, size_t length, const char *server)
{
    Loop loop(core);
    sockaddr_in to{};
    int open = 0;
    to.sin_family = AF_INET;
    to.sin_port = htons(7);
    to.sin_addr.s_addr = inet_addr(server);
    mtcp_init_rss(loop.mctx, INADDR_ANY, 1, to.sin_addr.s_addr, to.sin_port);
    for (int i = 0; i < connections; i++) {
        int sockid = mtcp_socket(loop.mctx, AF_INET, SOCK_STREAM, 0);
        if (sockid < 0 || mtcp_setsock_nonblock(loop.mctx, sockid) < 0)
            fail("mtcp_socket");
        if (mtcp_connect(loop.mctx, sockid, reinterpret_cast<sockaddr *>(&to), sizeof to) < 0 && errno != EINPROGRESS)
            fail("mtcp_connect");
        loop.add(sockid, std::unique_ptr<Handler>(new Caller(sockid, length, open)));
    }
    while (open > 0)
        loop.round();
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    int cores = std::atoi(argv[3]);
    mtcp_conf conf;
    mtcp_getconf(&conf);
    conf.num_cores = cores;
    mtcp_setconf(&conf);
    if (mtcp_init(argv[2]) < 0)
        return 1;
    mtcp_register_signal(SIGINT, [](int) { over = true; });
    std::vector<std::thread> threads;
    for (int core = 0; core < cores; core++) {
        threads.emplace_back([=] {
            if (std::strcmp(argv[1], "serve") == 0)
                serve(core);
            else
                load(core, std::atoi(argv[4]), static_cast<size_t>(std::atol(argv[5])), argv[6]);
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    mtcp_destroy();
    std::printf("done\n");
    return 0;
}
