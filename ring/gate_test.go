package ring_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/ring"
)

// inlet is a transport whose inbound connections a test makes.
type inlet struct {
	memberlist.NodeAwareTransport
	streams chan net.Conn
}

func (n *inlet) StreamCh() <-chan net.Conn { return n.streams }
func (n *inlet) Shutdown() error           { return nil }

// remote is a connection from an address.
type remote struct {
	net.Conn
	from net.Addr
}

func (c remote) RemoteAddr() net.Addr { return c.from }

// strangers connect to a gate with a reader behind it in place of memberlist, which reads whatever
// comes for three seconds.
type strangers struct {
	in     *inlet
	gate   memberlist.Transport
	inside func() (conns int, more int64)
}

func newStrangers() *strangers {
	s := &strangers{in: &inlet{streams: make(chan net.Conn)}}
	s.gate, s.inside = ring.Gate(s.in)
	go func() {
		for nc := range s.gate.StreamCh() {
			go func() {
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(3 * time.Second))
				head := make([]byte, 5)
				if _, err := io.ReadFull(nc, head); err != nil {
					return
				}
				n := int64(binary.BigEndian.Uint32(head[1:]))
				if m, _ := io.CopyN(io.Discard, nc, n); m == n {
					_, _ = nc.Write([]byte("state"))
				}
			}()
		}
	}()
	return s
}

// dial connects from an address.
func (s *strangers) dial(from string) net.Conn {
	here, there := net.Pipe()
	s.in.streams <- remote{there, &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}
	return here
}

// join exchanges a state of n bytes, and reports whether it was answered.
func (s *strangers) join(from string, n int) bool {
	nc := s.dial(from)
	defer nc.Close()
	message := append(binary.BigEndian.AppendUint32([]byte{10}, uint32(n)), make([]byte, n)...)
	if _, err := nc.Write(message); err != nil {
		return false
	}
	_, err := io.ReadFull(nc, make([]byte, 5))
	return err == nil
}

// TestStrangersLeaveRoomForMembers fills a gate with connections that are silent, that send without
// end, and that announce a large state and send it slowly, from one address and from many.
// Meanwhile a member joins, also from an attacking address.
func TestStrangersLeaveRoomForMembers(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector crashes now and then under so many connections")
	}
	for name, attack := range map[string]func(nc net.Conn){
		"silent": func(net.Conn) {},
		"endless": func(nc net.Conn) {
			_, _ = nc.Write([]byte{10, 1, 0, 0, 0})
			for junk := make([]byte, 64<<10); ; {
				if _, err := nc.Write(junk); err != nil {
					return
				}
			}
		},
		"slow": func(nc net.Conn) {
			_, _ = nc.Write([]byte{10, 0, 1, 0, 0})
			for {
				if _, err := nc.Write(make([]byte, 100)); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStrangers()
				var attacking sync.WaitGroup
				for i := range 1500 {
					from := "192.0.2.1"
					if i%3 == 0 {
						from = net.IPv4(198, 51, 100, byte(i)).String()
					}
					nc := s.dial(from)
					attacking.Go(func() { attack(nc); _, _ = io.Copy(io.Discard, nc) })
					conns, more := s.inside()
					if conns > ring.MaxInbound || more > ring.InboundBytes+1<<16 {
						t.Fatalf("%d connections, %d bytes", conns, more)
					}
					if i%100 == 99 {
						for _, member := range []string{from, "203.0.113.1"} {
							if !s.join(member, ring.FreeInbound-5) {
								t.Errorf("after %d strangers, a member at %s can't join", i, member)
							}
						}
					}
				}
				attacking.Wait()
				synctest.Wait() // until the members' connections are closed as well
				if conns, more := s.inside(); conns != 0 || more != 0 {
					t.Errorf("at the end: %d connections, %d bytes", conns, more)
				}
				shut(t, s)
			})
		})
	}
}

// TestOneAddressLeavesRoomForAState has an address send as many bytes as allowed, and keep its
// connections open. Meanwhile a member at another address exchanges the state of a large cluster.
func TestOneAddressLeavesRoomForAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStrangers()
		for range 40 {
			nc := s.dial("192.0.2.1")
			go func() {
				_, _ = nc.Write(append([]byte{10, 1, 0, 0, 0}, make([]byte, 100<<10)...))
				_, _ = io.Copy(io.Discard, nc)
			}()
		}
		synctest.Wait()
		if !s.join("203.0.113.1", 900<<10) {
			t.Error("the state of a large cluster is not accepted")
		}
		time.Sleep(4 * time.Second)
		shut(t, s)
	})
}

// shut closes the gate, and ends the goroutine that reads behind it.
func shut(t *testing.T, s *strangers) {
	t.Helper()
	if err := errors.Join(s.gate.Shutdown(), s.gate.Shutdown()); err != nil {
		t.Error(err)
	}
	ring.EndStreams(s.gate)
}

var gateSeed = flag.Uint64("gateseed", 0, "run the model of the gate with this seed only")

// TestGateIsBounded lets members and strangers connect, send and hang up in any order. At no time
// are more connections open, or more bytes being read, than the gate allows, in total and from one
// address; the state of a large cluster is exchanged when the strangers have gone, and nothing is
// in use in the end.
func TestGateIsBounded(t *testing.T) {
	seed := *gateSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-gateseed=%d", seed)
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := newStrangers()
		for range 600 {
			nc := s.dial(net.IPv4(192, 0, 2, byte(random.IntN(4))).String())
			n, announced := random.IntN(300<<10), random.IntN(2<<20)
			go func() {
				defer nc.Close()
				head := binary.BigEndian.AppendUint32([]byte{10}, uint32(announced))
				_, _ = nc.Write(append(head, make([]byte, n)...))
				_, _ = io.Copy(io.Discard, nc)
			}()
			if random.IntN(50) == 0 {
				time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			}
			conns, more := s.inside()
			if conns > ring.MaxInbound || more > ring.InboundBytes+64<<10 {
				t.Fatalf("%d connections, %d bytes", conns, more)
			}
		}
		time.Sleep(4 * time.Second)
		if !s.join("192.0.2.1", 900<<10) {
			t.Error("the state of a large cluster is not accepted")
		}
		time.Sleep(4 * time.Second)
		if conns, more := s.inside(); conns != 0 || more != 0 {
			t.Errorf("at the end: %d connections, %d bytes", conns, more)
		}
		shut(t, s)
	})
}

// overtaken is a connection that is closed after a read has returned, before its caller goes on.
type overtaken struct {
	net.Conn
	closing func() error
}

func (c *overtaken) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, errors.Join(err, c.closing())
}

// TestClosedConnectionIsNotCharged closes a connection, as the gate does to make room for another
// one, while a read of it has returned and is not charged yet. Its bytes must not stay in the sum.
func TestClosedConnectionIsNotCharged(t *testing.T) {
	in := &inlet{streams: make(chan net.Conn)}
	gate, inside := ring.Gate(in)
	here, there := net.Pipe()
	defer here.Close()
	c := &overtaken{Conn: there}
	in.streams <- c
	nc := <-gate.StreamCh()
	c.closing = nc.Close
	go func() { _, _ = here.Write(make([]byte, 64<<10)) }()
	if n, err := nc.Read(make([]byte, 64<<10)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if conns, more := inside(); conns != 0 || more != 0 {
		t.Errorf("after the end: %d connections, %d bytes", conns, more)
	}
	if err := gate.Shutdown(); err != nil {
		t.Error(err)
	}
}

// TestJoinThroughAFlood joins a node, over the network, while strangers flood its gossip from the
// same address, without the secret.
func TestJoinThroughAFlood(t *testing.T) {
	secret := []byte("a secret of 16 b")
	open := func(name string, join ...string) *ring.Ring {
		r, err := ring.New(ring.Options{ID: name, Bind: "127.0.0.1:0", Join: join, Secret: secret,
			Agreement: ring.Agreement{Partitions: 16}})
		must.Succeed(t, err)
		must.Succeed(t, r.Open(t.Context(), "127.0.0.1:1"))
		t.Cleanup(func() { _ = r.Close(context.Background()) })
		return r
	}
	a := open("a")
	for range 300 {
		nc, err := net.Dial("tcp", a.Gossip())
		must.Succeed(t, err)
		t.Cleanup(func() { nc.Close() })
	}
	b := open("b", a.Gossip())
	if n := b.Table().Len(); n != 2 {
		t.Errorf("b knows %d members, want 2", n)
	}
}
