package ring

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Options configure a [Ring]. The zero value of a field means its default.
type Options struct {
	// ID is what this node is called. Required.
	ID string
	// Name is what this process is called; no other may ever have had the name. Default: the ID and
	// random characters.
	Name string
	// Bind is the address for gossip (UDP and TCP), as host:port. Port 0 picks a free one. Default:
	// 127.0.0.1:7946.
	Bind string
	// Advertise is where others reach Bind, if that differs.
	Advertise string
	// Join are addresses for gossip of other members, as host:port. Those that are not there yet
	// are tried again.
	Join []string
	// Secret encrypts and authenticates the gossip, see also SetSecrets. Nodes with different
	// secrets form no cluster. Default: none.
	Secret []byte
	// Agreement is what all members must have in common. Required.
	Agreement Agreement
	// Tag is what SetTag is told at the beginning.
	Tag string
	// RejoinInterval is how often members that were lost, and those of Join that never came, are
	// looked for; more often at first. Default: 10 s.
	RejoinInterval time.Duration
	// OnChange is told of every table after the first, by one goroutine. Optional.
	OnChange func(*Table)
	// Transport replaces the network, for tests.
	Transport memberlist.Transport
	// Logger is told of changes of state. Default: none.
	Logger *slog.Logger
}

// Ring is this node's part in the membership. Make one with [New], start it with Open, stop it with
// Close.
type Ring struct {
	opt     Options
	born    int64
	table   atomic.Pointer[Table]
	list    *memberlist.Memberlist
	views   views
	secrets secrets

	metaMu sync.Mutex // held by nobody who calls memberlist
	meta   meta
	host   string // of the gossip

	stop context.CancelFunc
	done sync.WaitGroup
	once sync.Once
	err  error
}

// New checks the options and returns a ring that consists of this node alone until it is opened.
func New(opt Options) (*Ring, error) {
	if opt.ID == "" || len(opt.ID) > maxID {
		return nil, fmt.Errorf("ring: the ID is %q, want 1 to %d bytes", opt.ID, maxID)
	}
	if opt.Name == "" {
		opt.Name = opt.ID + "-" + rand.Text()[:8]
	}
	opt.Bind = cmp.Or(opt.Bind, "127.0.0.1:7946")
	opt.RejoinInterval = cmp.Or(opt.RejoinInterval, 10*time.Second)
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if len(opt.Tag) > maxTag {
		return nil, fmt.Errorf("ring: a tag of %d bytes, want at most %d", len(opt.Tag), maxTag)
	}
	r := &Ring{opt: opt, born: time.Now().UnixMilli()}
	r.views.init(opt)
	if len(opt.Secret) > 0 {
		r.secrets.list = [][]byte{opt.Secret}
	}
	r.meta = meta{
		Protocol: Protocol, Partitions: opt.Agreement.Partitions, Seed: opt.Agreement.Seed,
		Data: opt.Agreement.Data,
		ID:   opt.ID, Born: r.born, Starting: true, Tag: opt.Tag,
	}
	t, err := NewTable([]Member{{ID: opt.ID, Name: opt.Name, Born: r.born, Starting: true,
		Tag: opt.Tag}}, opt.Name, opt.Agreement.Partitions, opt.Agreement.Seed)
	if err != nil {
		return nil, err
	}
	r.table.Store(t)
	return r, nil
}

// Name is what this process is called.
func (r *Ring) Name() string { return r.opt.Name }

// Self is this process as the others see it.
func (r *Ring) Self() Member {
	r.metaMu.Lock()
	defer r.metaMu.Unlock()
	host := r.meta.Host
	if host == "" {
		host = r.host
	}
	return Member{
		ID: r.opt.ID, Name: r.opt.Name, Address: net.JoinHostPort(host, strconv.Itoa(r.meta.Port)),
		Born:     r.born,
		Draining: r.meta.Draining, Starting: r.meta.Starting, Tag: r.meta.Tag,
		Peer: r.meta.peer(host),
	}
}

// Twins returns the other processes that are alive, or not declared dead yet, under this node's ID.
// Those that are starting as well, but are younger, are not among them: one of two has to give way.
func (r *Ring) Twins() (list []Member) {
	for _, m := range r.views.snapshot() {
		younger := m.Born > r.born || m.Born == r.born && m.Name > r.opt.Name
		if m.ID == r.opt.ID && m.Name != r.opt.Name && !(m.Starting && younger) {
			list = append(list, m)
		}
	}
	return list
}

// Table returns the present state of the cluster.
func (r *Ring) Table() *Table { return r.table.Load() }

// Open begins to gossip and joins the members named in Options.Join. The node is a member that owns
// nothing until Enter is called, so that it can be found out before whether another process has its
// ID. address is where this node serves HTTP; an unspecified host stands for that of the gossip. If
// some member is reached that this node does not fit, the error wraps [ErrRefused]; if members are
// there but don't let it in, it wraps [ErrNotJoined]. Members that are not there yet are no error.
func (r *Ring) Open(ctx context.Context, address string) error {
	if r.stop != nil {
		return errors.New("ring: opened twice")
	}
	if err := r.setAddress(address); err != nil {
		return err
	}
	cfg, err := r.config()
	if err != nil {
		return err
	}
	list, err := memberlist.Create(cfg)
	if err != nil {
		return fmt.Errorf("gossip on %s: %w", r.opt.Bind, err)
	}
	r.list = list
	r.metaMu.Lock()
	r.host = list.LocalNode().Addr.String()
	r.metaMu.Unlock()
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	err = r.join(run, r.opt.Join)
	r.rebuild()
	r.done.Go(func() { r.runRebuild(run) })
	r.done.Go(func() { r.runRejoin(run) })
	return err
}

// SetPeer tells the others to send messages to another address than the one for everyone, unless
// that is empty, and whether to do so by TLS. An unspecified host stands for that of the gossip. It
// is for before Open.
func (r *Ring) SetPeer(address string, secure bool) error {
	r.meta.Secure = secure
	if address == "" {
		return nil
	}
	var err error
	if r.meta.PeerHost, r.meta.PeerPort, err = splitAddress(address, maxPeerHost); err != nil {
		return fmt.Errorf("ring: peer address %w", err)
	}
	return nil
}

// splitAddress takes a host:port apart; the host is empty if it is unspecified.
func splitAddress(address string, most int) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q: %w", address, err)
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("%q: want a port", address)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	if len(host) > most {
		return "", 0, fmt.Errorf("%q: the host is longer than %d bytes", address, most)
	}
	return host, port, nil
}

// setAddress notes where this node serves HTTP.
func (r *Ring) setAddress(address string) (err error) {
	if r.meta.Host, r.meta.Port, err = splitAddress(address, maxHost); err != nil {
		return fmt.Errorf("ring: address %w", err)
	}
	return nil
}

// config is memberlist's for a local network, with our names, keys and ears.
func (r *Ring) config() (*memberlist.Config, error) {
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = r.opt.Name
	cfg.Logger = newLog(r.opt.Logger)
	cfg.Delegate, cfg.Events, cfg.Alive, cfg.Merge = speaker{r}, &r.views, &r.views, &r.views
	cfg.Transport = r.opt.Transport
	// What is said fits a packet anyhow.
	cfg.EnableCompression = false
	// A push and pull with a host that swallows everything holds up the search for others.
	cfg.TCPTimeout = 3 * time.Second
	// A suspect has up to so many times the shortest time (four seconds) to answer, less for every
	// other node that suspects it, too. memberlist expects two of those as soon as it knows of four
	// nodes, and counts nodes that died within the last half minute: among three of which one was
	// restarted, there is one other at most, and a crash took 14 s to be noticed.
	cfg.SuspicionMaxTimeoutMult = 2
	var err error
	if cfg.BindAddr, cfg.BindPort, err = hostPort(r.opt.Bind); err != nil {
		return nil, fmt.Errorf("ring: gossip address %q: %w", r.opt.Bind, err)
	}
	cfg.AdvertisePort = cfg.BindPort
	if r.opt.Advertise != "" {
		if cfg.AdvertiseAddr, cfg.AdvertisePort, err = hostPort(r.opt.Advertise); err != nil {
			return nil, fmt.Errorf("ring: advertised address %q: %w", r.opt.Advertise, err)
		}
	}
	cfg.Keyring, err = r.secrets.open()
	return cfg, err
}

func hostPort(address string) (string, int, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return "", 0, fmt.Errorf("want a port, got %q", port)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, n, nil
}

// Gossip returns the address that others reach this node's gossip at, "" before Open.
func (r *Ring) Gossip() string {
	if r.list == nil {
		return ""
	}
	return r.list.LocalNode().Address()
}

// Enter tells all others that this node may own partitions. It returns once all that can be reached
// have heard it, or ctx is done.
func (r *Ring) Enter(ctx context.Context) {
	r.metaMu.Lock()
	r.meta.Starting = false
	r.metaMu.Unlock()
	if r.list == nil {
		return
	}
	// Gossip takes its time, and is not waited for; whoever can be asked is told at once.
	_ = r.list.UpdateNode(time.Nanosecond)
	r.inform(ctx)
	r.rebuild()
}

// Drain tells all others that this node is about to leave: from now on it owns nothing, but it is
// there to hand over what it had. It returns once all that can be reached have heard it, or ctx is
// done.
func (r *Ring) Drain(ctx context.Context) error {
	return r.tell(ctx, func(m *meta) { m.Draining = true })
}

// SetTag tells all others a text of at most 64 bytes, which is part of this node's Member. It
// returns once all that can be reached have heard it, or ctx is done.
func (r *Ring) SetTag(ctx context.Context, tag string) error {
	if len(tag) > maxTag {
		return fmt.Errorf("ring: a tag of %d bytes, want at most %d", len(tag), maxTag)
	}
	return r.tell(ctx, func(m *meta) { m.Tag = tag })
}

// tellTimeout bounds what Drain and SetTag wait for if their context has no deadline.
const tellTimeout = 2 * time.Second

// tell changes what this node says about itself.
func (r *Ring) tell(ctx context.Context, change func(*meta)) error {
	r.metaMu.Lock()
	change(&r.meta)
	r.metaMu.Unlock()
	if r.list == nil {
		return nil
	}
	wait := tellTimeout
	if by, ok := ctx.Deadline(); ok {
		wait = max(time.Until(by), time.Millisecond)
	}
	if err := r.list.UpdateNode(wait); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	r.inform(ctx)
	return nil
}

// leaveTimeout bounds how long the word of leaving may take to get out.
const leaveTimeout = time.Second

// Close leaves the cluster and stops gossiping. It may be called twice. memberlist ends its last
// goroutines within some seconds.
func (r *Ring) Close(ctx context.Context) error {
	r.once.Do(func() {
		if r.stop == nil {
			return
		}
		r.stop()
		wait := leaveTimeout
		if by, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(by)), time.Millisecond)
		}
		if err := r.list.Leave(wait); err != nil {
			// The others, if there are any, find out when it does not answer.
			r.opt.Logger.Debug("nobody heard that this node left", "error", err)
		}
		r.err = r.list.Shutdown()
		r.done.Wait()
	})
	return r.err
}
