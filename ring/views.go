package ring

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// maxLost bounds how many addresses of lost members are remembered.
const maxLost = 256

// views keeps the members that memberlist reports. memberlist calls it while it holds a lock, so
// its methods only record and signal.
type views struct {
	agreement Agreement
	log       *slog.Logger
	signal    chan struct{} // holds one
	strangers chan stranger // to be contacted

	mu      sync.Mutex
	members map[string]announcement // by name
	heard   map[string]stranger     // members that gossip has not reported yet, by name
	gossip  map[string]string       // addresses for gossip by name
	lost    map[string]bool         // addresses for gossip of members that were declared dead
	refused map[string]bool         // names whose refusal was logged
}

func (v *views) init(opt Options) {
	v.agreement, v.log = opt.Agreement, opt.Logger
	v.signal = make(chan struct{}, 1)
	v.strangers = make(chan stranger, maxStrangers)
	v.members, v.heard = map[string]announcement{}, map[string]stranger{}
	v.gossip = map[string]string{}
	v.lost, v.refused = map[string]bool{}, map[string]bool{}
}

func (v *views) signalChange() {
	select {
	case v.signal <- struct{}{}:
	default:
	}
}

// NotifyJoin implements memberlist.EventDelegate.
func (v *views) NotifyJoin(n *memberlist.Node) { v.NotifyUpdate(n) }

// NotifyUpdate implements memberlist.EventDelegate.
func (v *views) NotifyUpdate(n *memberlist.Node) {
	m, err := decode(n, v.agreement)
	if err != nil {
		return // NotifyAlive has refused it
	}
	v.mu.Lock()
	if said := v.members[n.Name]; said.change > m.change {
		m = said // this node has received a later announcement directly
	}
	v.members[n.Name] = m
	delete(v.heard, n.Name)
	v.gossip[n.Name] = n.Address()
	delete(v.lost, n.Address())
	v.mu.Unlock()
	v.signalChange()
}

// NotifyLeave implements memberlist.EventDelegate. memberlist does not distinguish between a node
// that left and one that was declared dead; a node that announced that it would leave is not
// searched for afterwards.
func (v *views) NotifyLeave(n *memberlist.Node) {
	v.mu.Lock()
	left := v.members[n.Name].Draining
	v.removeLocked(n.Name)
	if !left {
		if len(v.lost) >= maxLost {
			for address := range v.lost {
				delete(v.lost, address)
				break
			}
		}
		v.lost[n.Address()] = true
	}
	v.mu.Unlock()
	v.signalChange()
}

func (v *views) removeLocked(name string) {
	delete(v.members, name)
	delete(v.gossip, name)
	delete(v.heard, name)
}

// NotifyAlive implements memberlist.AliveDelegate. It rejects nodes that are configured
// differently.
func (v *views) NotifyAlive(n *memberlist.Node) error {
	_, err := decode(n, v.agreement)
	if err != nil {
		v.mu.Lock()
		news := !v.refused[n.Name] && len(v.refused) < maxLost
		if news {
			v.refused[n.Name] = true
		}
		v.mu.Unlock()
		if news {
			v.log.Warn("refused a node that is configured differently", "error", err)
		}
	}
	return err
}

// NotifyMerge implements memberlist.MergeDelegate. It refuses to join members that are configured
// differently.
func (v *views) NotifyMerge(peers []*memberlist.Node) error {
	for _, n := range peers {
		if n.State != memberlist.StateAlive {
			continue
		}
		if _, err := decode(n, v.agreement); err != nil {
			return err
		}
	}
	return nil
}

func (v *views) snapshot() (list []Member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.members {
		list = append(list, m.Member)
	}
	return list
}

// hasEntered reports whether there is a member, except the named one, that is past starting.
func (v *views) hasEntered(but string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, m := range v.members {
		if name != but && !m.Starting {
			return true
		}
	}
	return false
}

// addresses returns the gossip addresses of all members except the named one.
func (v *views) addresses(but string) (list []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, address := range v.gossip {
		if name != but {
			list = append(list, address)
		}
	}
	return list
}

// missingAddresses returns the gossip addresses of lost members, and of seeds that are not members.
func (v *views) missingAddresses(ctx context.Context, seeds []string) []string {
	v.mu.Lock()
	present := map[string]bool{}
	for _, address := range v.gossip {
		present[address] = true
	}
	want := map[string]bool{}
	for address := range v.lost {
		want[address] = true
	}
	v.mu.Unlock()
	for _, seed := range seeds {
		for _, address := range resolve(ctx, seed) {
			want[address] = true
		}
	}
	maps.DeleteFunc(want, func(address string, _ bool) bool { return present[address] })
	return slices.Sorted(maps.Keys(want))
}

// resolve returns the addresses of a host:port.
func resolve(ctx context.Context, seed string) (list []string) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		return nil
	}
	if net.ParseIP(host) != nil {
		return []string{seed}
	}
	// A name that can't be resolved now is tried again later.
	ips, _ := net.DefaultResolver.LookupHost(ctx, host)
	for _, ip := range ips {
		list = append(list, net.JoinHostPort(ip, port))
	}
	return list
}

// String names a member for the log.
func (m *Member) String() string {
	return m.ID + " (" + m.Address + ", " + strconv.FormatInt(m.Born, 10) + ")"
}

// A node that joins exchanges state with few members, and then announces itself to all that it
// knows of. Gossip takes up to a second to report it to them. Meanwhile they believe the node
// itself, and pass its announcement on when they exchange state: of two nodes that join at the same
// time, the second has to know which partitions the first may own.

const (
	// maxStrangers bounds how many nodes are members although gossip has not reported them.
	maxStrangers = 64
	// strangerPatience is how long gossip may take to report such a node before it is contacted.
	strangerPatience = time.Second
)

// message is a node's direct message to others: its name, its address for gossip, and its meta.
type message struct {
	Name   string
	Gossip string
	Meta   json.RawMessage
}

// stranger is a member that gossip has not reported yet.
type stranger struct {
	message
	direct bool // the message came from the node itself
}

// node returns the sender in memberlist's form, or nil if it has no valid address.
func (m *message) node() *memberlist.Node {
	at, err := netip.ParseAddrPort(m.Gossip)
	if err != nil {
		return nil
	}
	return &memberlist.Node{Name: m.Name, Addr: at.Addr().AsSlice(), Port: at.Port(), Meta: m.Meta}
}

// applyAnnouncement applies an announcement, from the node itself or passed on by another one.
func (v *views) applyAnnouncement(s stranger) {
	n := s.node()
	if n == nil {
		return
	}
	m, err := decode(n, v.agreement)
	if err != nil {
		return // NotifyAlive will log why
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch now, known := v.members[n.Name]; {
	case known && m.change <= now.change, !known && len(v.heard) >= maxStrangers:
		return
	case !known:
		time.AfterFunc(jitter(strangerPatience), func() { v.queueContact(n.Name) })
		v.heard[n.Name], v.gossip[n.Name] = s, n.Address()
	}
	v.members[n.Name] = m
	v.signalChange()
}

func (v *views) queueContact(name string) {
	v.mu.Lock()
	s, strange := v.heard[name]
	v.mu.Unlock()
	if strange {
		select {
		case v.strangers <- s:
		default:
			v.forgetStranger(name) // gossip will report it
		}
	}
}

// forgetStranger removes a stranger, unless it has become a member that gossip reports.
func (v *views) forgetStranger(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, strange := v.heard[name]; strange {
		v.removeLocked(name)
		v.signalChange()
	}
}

// encodeMessages returns the messages that strangers have sent to this node, for other nodes.
func (v *views) encodeMessages() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []message
	for _, s := range v.heard {
		if s.direct {
			list = append(list, s.message)
		}
	}
	if len(list) == 0 {
		return nil
	}
	text, _ := json.Marshal(list) // strings and JSON always marshal
	return text
}

// applyMessages applies the messages that another node passes on.
func (v *views) applyMessages(text []byte) {
	var list []message
	if len(text) == 0 || json.Unmarshal(text, &list) != nil {
		return
	}
	for _, m := range list {
		v.applyAnnouncement(stranger{m, false})
	}
}
