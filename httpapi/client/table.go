package client

import (
	"errors"
	"math/bits"
	"net"
	"net/netip"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/valyala/fastjson"
)

// table is one state of the cluster, as reported by a node. It is immutable.
type table struct {
	version  uint64
	seed     uint64
	hashTags map[string]bool // by namespace; a missing one is like the default namespace
	owners   []uint16        // by partition, an index into members; empty if any node will do
	members  []member
}

type member struct {
	address string // empty if it can't be reached directly
	leaving bool
}

// Bounds of an accepted table.
const (
	maxPartitions = 1 << 16 // as on the servers
	maxMembers    = 1 << 12
	maxNamespaces = 1 << 12
)

// errTable is the error of a node's report about the cluster that is inconsistent.
var errTable = errors.New("the table of owners is malformed")

// rawTable is the answer to GET /v1/cluster?owners=true while it is being parsed.
type rawTable struct {
	table
	reader
	mode       string
	partitions int64
	seeded     bool
}

// readTable parses the table that the node at an address reported.
func readTable(b []byte, address string) (*table, error) {
	var p fastjson.Parser
	v, err := parse(&p, b, maxPartitions+64*maxMembers+maxNamespaces)
	if err != nil {
		return nil, errTable
	}
	var r rawTable
	r.mode, r.version = string(r.text(v, "mode")), r.unsigned(v, "ring_version")
	r.partitions = r.integer(v, "partitions")
	r.seed, r.seeded = r.unsigned(v, "hash_seed"), v.Exists("hash_seed")
	r.readMembers(v, address)
	r.readOwners(v)
	r.hashTags = r.booleans(v, "hash_tags", maxNamespaces)
	return r.check()
}

func (r *rawTable) readMembers(v *fastjson.Value, address string) {
	for _, m := range r.list(v, "members", maxMembers) {
		at := reachable(string(r.text(m, "address")), address, r.boolean(m, "self"))
		r.members = append(r.members, member{at, string(r.text(m, "state")) != "alive"})
	}
}

// reachable returns the address to reach a member at, or none if the member did not give one. If
// the reporting node listens on all addresses of its machine, its address is the one that the
// client called.
func reachable(address, at string, self bool) string {
	host, _, err := net.SplitHostPort(address)
	ip, notIP := netip.ParseAddr(host)
	unspecified := err != nil || host == "" || notIP == nil && ip.IsUnspecified()
	switch {
	case unspecified && self:
		return at
	case unspecified:
		return ""
	}
	return address
}

func (r *rawTable) readOwners(v *fastjson.Value) {
	for _, o := range r.list(v, "owners", maxPartitions) {
		n, err := o.Uint()
		if r.bad = r.bad || err != nil || n >= maxMembers; r.bad {
			return
		}
		r.owners = append(r.owners, uint16(n))
	}
}

// check returns the table if it is consistent.
func (r *rawTable) check() (*table, error) {
	t := r.table
	if r.bad || len(t.members) == 0 {
		return nil, errTable
	}
	// Without owners, Redis decides, or the node does not know the owners.
	if r.mode != "two-tier" || len(t.owners) == 0 || !r.seeded {
		t.owners = nil
		return &t, nil
	}
	if int64(len(t.owners)) != r.partitions {
		return nil, errTable
	}
	for _, o := range t.owners {
		if int(o) >= len(t.members) {
			return nil, errTable
		}
	}
	return &t, nil
}

// none is the index of no member.
const none = -1

// owner returns the index of the member that owns a key, or none.
func (t *table) owner(ns, key string) int {
	if t == nil || len(t.owners) == 0 {
		return none
	}
	return int(t.owners[t.partition(ns, key)])
}

// partition computes the same as the servers: xxHash64 of the key and, unless it is the default
// one, of its namespace, mixed by the finalizer of MurmurHash3.
func (t *table) partition(ns, key string) int {
	if len(t.hashTags) > 0 {
		ns, key = t.placementKey(ns, key)
	}
	h := xxhash.Sum64String(key) ^ t.seed
	if ns != "" && ns != defaultNamespace {
		h += bits.RotateLeft64(xxhash.Sum64String(ns), 31)
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	hi, _ := bits.Mul64(h, uint64(len(t.owners)))
	return int(hi)
}

const defaultNamespace = "default"

// placementKey returns the namespace and text that place a key: its own or, if it has a hash tag
// and its namespace uses them, the default namespace and the tag.
func (t *table) placementKey(ns, key string) (string, string) {
	tagged, listed := t.hashTags[ns]
	if !listed {
		tagged = t.hashTags[defaultNamespace]
	}
	_, after, _ := strings.Cut(key, "{")
	if tag, _, ok := strings.Cut(after, "}"); tagged && ok && tag != "" {
		return "", tag
	}
	return ns, key
}
