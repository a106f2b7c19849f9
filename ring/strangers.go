package ring

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

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

// queueContact queues a stranger to be contacted.
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

// meetStranger exchanges state with a stranger, which makes it a member like all others.
func (r *Ring) meetStranger(ctx context.Context, s stranger) {
	<-r.exchangeWithAll(ctx, []string{s.Gossip})
	r.views.forgetStranger(s.Name)
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
