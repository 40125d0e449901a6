// Command netstack is a rival of Millstream in `cargo xtask bench message` and `bulk`: both ends of
// gVisor's network stack in one process, over its pipe link.
//
// It takes the options of `cargo xtask bench one-thread` and prints a result of the same form. With
// -bulk, it takes and prints those of `rivals smoltcp-bulk`. Connections are goroutines with
// blocking calls, which is how the stack is meant to be used from Go. TIME_WAIT is cut to 100 ms,
// since a port would otherwise be held for a minute.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/pipe"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	nic      = 1
	port     = 7
	timeWait = 100 * time.Millisecond
)

var (
	server = tcpip.AddrFrom4([4]byte{10, 9, 0, 1})
	client = tcpip.AddrFrom4([4]byte{10, 9, 0, 2})

	exchange      = flag.String("exchange", "messages", "")
	requestBytes  = flag.Int("request-bytes", 64, "")
	responseBytes = flag.Int("response-bytes", 64, "")
	messages      = flag.Int("messages", 1, "")
	connections   = flag.Int("connections", 64, "")
	_             = flag.Int("idle", 0, "")
	seconds       = flag.Float64("seconds", 3, "")
	warmUp        = flag.Float64("warm-up", 1, "")
	_             = flag.Int("transactions", 0, "")
	bulkOnly      = flag.Bool("bulk", false, "")
	packetBytes   = flag.Int("mtu", 1500, "")
	versionsOnly  = flag.Bool("versions", false, "")
)

// bufferBytes is the size of each socket's send and receive buffer in a long transfer.
const bufferBytes = 4 << 20

// host makes a stack with one address on one end of the pipe.
func host(link stack.LinkEndpoint, address tcpip.Address) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	wait := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, &wait); err != nil {
		return nil, fmt.Errorf("TIME_WAIT: %s", err)
	}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: bufferBytes, Max: bufferBytes}
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: bufferBytes, Max: bufferBytes}
	if *bulkOnly {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, &send); err != nil {
			return nil, fmt.Errorf("send buffer: %s", err)
		}
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, &receive); err != nil {
			return nil, fmt.Errorf("receive buffer: %s", err)
		}
	}
	// SACK is on in Linux, and off in netstack unless it is set.
	sack := tcpip.TCPSACKEnabled(true)
	if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack); err != nil {
		return nil, fmt.Errorf("SACK: %s", err)
	}
	if err := s.CreateNIC(nic, link); err != nil {
		return nil, fmt.Errorf("link: %s", err)
	}
	own := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: address, PrefixLen: 24},
	}
	if err := s.AddProtocolAddress(nic, own, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("address: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return s, nil
}

func serve(listener *gonet.TCPListener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go answer(conn)
	}
}

// answer serves one connection and closes it first, after the last response. If a client breaks
// off, the client itself counts the failure.
func answer(conn io.ReadWriteCloser) {
	defer conn.Close()
	request, response := make([]byte, *requestBytes), make([]byte, *responseBytes)
	for left := *messages; ; {
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		if _, err := conn.Write(response); err != nil {
			return
		}
		if left--; left == 0 {
			return
		}
	}
}

// load is one connection after another until the time is over.
type load struct {
	stack       *stack.Stack
	counts, end time.Time
	failures    *atomic.Int64
	all         int
	latenciesNs []int64
}

func (l *load) run() {
	for time.Now().Before(l.end) {
		if err := l.connect(); err != nil {
			if l.failures.Add(1) == 1 {
				fmt.Fprintf(os.Stderr, "first failed transaction: %s\n", err)
			}
		}
	}
}

func (l *load) connect() error {
	began := time.Now()
	to := tcpip.FullAddress{NIC: nic, Addr: server, Port: port}
	conn, err := gonet.DialTCP(l.stack, to, ipv4.ProtocolNumber)
	if err != nil {
		return err
	}
	defer conn.Close()
	request, response := make([]byte, *requestBytes), make([]byte, *responseBytes)
	for left := *messages; ; {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, response); err != nil {
			return err
		}
		left--
		if left == 0 {
			if _, err := conn.Read(response[:1]); err != io.EOF {
				return fmt.Errorf("not the server's end but %v", err)
			}
		}
		now := time.Now()
		l.all++
		if now.After(l.counts) && now.Before(l.end) {
			l.latenciesNs = append(l.latenciesNs, now.Sub(began).Nanoseconds())
		}
		if left == 0 || now.After(l.end) {
			return nil
		}
		began = now
	}
}

func cpuNs() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// pair makes two stacks with a pipe between them, and a listener on the first.
func pair() (*gonet.TCPListener, *stack.Stack, error) {
	here, there := pipe.New("\x02\x00\x00\x00\x00\x01", "\x02\x00\x00\x00\x00\x02", uint32(*packetBytes))
	serverStack, err := host(here, server)
	if err != nil {
		return nil, nil, err
	}
	clientStack, err := host(there, client)
	if err != nil {
		return nil, nil, err
	}
	address := tcpip.FullAddress{NIC: nic, Addr: server, Port: port}
	listener, err := gonet.ListenTCP(serverStack, address, ipv4.ProtocolNumber)
	return listener, clientStack, err
}

func run() error {
	if *exchange != "messages" {
		return fmt.Errorf("netstack: only messages are exchanged")
	}
	listener, clientStack, err := pair()
	if err != nil {
		return err
	}
	go serve(listener)
	var failures atomic.Int64
	var cpuFromNs atomic.Int64
	counts := time.Now().Add(time.Duration(*warmUp * float64(time.Second)))
	end := counts.Add(time.Duration(*seconds * float64(time.Second)))
	time.AfterFunc(time.Until(counts), func() { cpuFromNs.Store(cpuNs()) })
	loads := make([]load, *connections)
	var group sync.WaitGroup
	for index := range loads {
		loads[index] = load{stack: clientStack, counts: counts, end: end, failures: &failures}
		group.Add(1)
		go func(l *load) {
			defer group.Done()
			l.run()
		}(&loads[index])
	}
	group.Wait()
	return report(loads, failures.Load(), cpuNs()-cpuFromNs.Load())
}

func report(loads []load, failures, cpuNs int64) error {
	var latencies []int64
	all, sum, squares := 0, int64(0), 0.0
	for index := range loads {
		all += loads[index].all
		latencies = append(latencies, loads[index].latenciesNs...)
	}
	if len(latencies) == 0 {
		return fmt.Errorf("netstack: no transaction succeeded, %d failed", failures)
	}
	sort.Slice(latencies, func(a, b int) bool { return latencies[a] < latencies[b] })
	for _, latency := range latencies {
		sum += latency
		squares += float64(latency) * float64(latency)
	}
	count := float64(len(latencies))
	mean := float64(sum) / count
	deviation := math.Sqrt(math.Max(squares/count-mean*mean, 0))
	at := func(share float64) float64 {
		return float64(latencies[int(share*float64(len(latencies)-1))]) / 1e3
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"transactions":         len(latencies),
		"transactions_all":     all,
		"failures":             failures,
		"seconds":              *seconds,
		"per_second":           float64(len(latencies)) / *seconds,
		"latency_us_p50":       at(0.5),
		"latency_us_p99":       at(0.99),
		"latency_us_p999":      at(0.999),
		"latency_us_mean":      mean / 1e3,
		"latency_us_min":       at(0),
		"latency_us_max":       at(1),
		"latency_us_deviation": deviation / 1e3,
		"client_cpu_us":        float64(cpuNs) / 1e3 / count,
	})
}

// bulk moves bytes from server to client on one connection, and prints how many came after the
// warm-up.
func bulk() error {
	listener, clientStack, err := pair()
	if err != nil {
		return err
	}
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		block := make([]byte, 256<<10)
		for {
			if _, err := conn.Write(block); err != nil {
				return
			}
		}
	}()
	to := tcpip.FullAddress{NIC: nic, Addr: server, Port: port}
	conn, err := gonet.DialTCP(clientStack, to, ipv4.ProtocolNumber)
	if err != nil {
		return err
	}
	defer conn.Close()
	buffer := make([]byte, 256<<10)
	receive := func(seconds float64) (int64, float64, error) {
		begin, bytes := time.Now(), int64(0)
		for time.Since(begin).Seconds() < seconds {
			count, err := conn.Read(buffer)
			if err != nil {
				return 0, 0, err
			}
			bytes += int64(count)
		}
		return bytes, time.Since(begin).Seconds(), nil
	}
	if _, _, err := receive(*warmUp); err != nil {
		return err
	}
	bytes, took, err := receive(*seconds)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"bytes": bytes, "seconds": took, "jain": 1.0})
}

// versions prints the versions of Go and gVisor that were built in.
func versions() error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return fmt.Errorf("netstack: no build information")
	}
	said := []string{info.GoVersion}
	for _, module := range info.Deps {
		if strings.HasPrefix(module.Path, "gvisor.dev/") {
			said = append(said, module.Path+" "+module.Version)
		}
	}
	fmt.Println(strings.Join(said, ", "))
	return nil
}

func main() {
	flag.Parse()
	task := run
	switch {
	case *versionsOnly:
		task = versions
	case *bulkOnly:
		task = bulk
	}
	if err := task(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
