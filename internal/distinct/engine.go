package distinct

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// Namespace configures a namespace of an engine.
type Namespace struct {
	Ladder *leaparray.Ladder
	// OnCold decides limits for a key that is not in memory while the store is down. If the store
	// answers with an error, the limits of the key are not decided.
	OnCold syncer.OnCold
	// MostValues is how many values of a key are kept before a sample stands for them. Default:
	// leaparray.DefaultMostValues.
	MostValues int
}

// space is a namespace of an engine.
type space struct {
	Namespace
	most int
}

// Owner reports the partitions that a node decides about.
type Owner interface {
	// Term reports whether this node currently decides about a partition. Each period of deciding
	// has a different term.
	Term(partition int) (term int64, decides bool)
}

// Options configure an [Engine].
type Options struct {
	// Store may be nil: then values stay in memory only.
	Store Store
	// Now returns the present in unix milliseconds. Required.
	Now func() int64
	// Placement maps keys to partitions; its seed also seeds the hashes. Required.
	Placement twotier.Placement
	// Namespaces by name. Unlisted ones use twotier.DefaultNamespace, which is required.
	Namespaces map[string]Namespace
	// Ack replaces AckDefault. Default: AckMemory.
	Ack twotier.Ack
	// MaxMemory bounds the memory in bytes. Keys already in memory may exceed it by a quarter.
	// Default: 64 MiB.
	MaxMemory int64
	// FlushInterval is how long a value stays in memory only. Default: 200 ms.
	FlushInterval time.Duration
	// VerifyInterval is how often an idle key is compared with the store. Default: 5 s.
	VerifyInterval time.Duration
	// Timeout bounds one exchange with the store. Default: 1 s.
	Timeout time.Duration
	// Logger receives changes of state. Default: none.
	Logger *slog.Logger
}

// shards is the number of locks.
const shards = 64

// Engine counts different values. Create it with [New]. It is safe for concurrent use.
type Engine struct {
	opt    Options
	spaces map[string]space
	owner  Owner // nil: the engine decides about everything
	gather Gather
	seed   maphash.Seed
	shards [shards]shard
	// deciding is read-locked from the look at the owner until the operation is done. Locking it
	// for writing waits for all operations that began before.
	deciding sync.RWMutex
	taking   chan struct{}  // full while a goroutine gathers other nodes' values
	terms    []atomic.Int64 // by partition: the term in which the other nodes were asked

	bytes    atomic.Int64
	keys     atomic.Int64
	down     atomic.Bool  // the last exchange failed
	failed   atomic.Int64 // when the last exchange failed, in unix nanoseconds
	silent   atomic.Int64 // when the first exchange since the last answer began, 0 if none failed
	loads    chan struct{}
	draining atomic.Bool
	leaving  atomic.Bool  // HandOver has begun
	next     atomic.Int64 // the first shard of the next flush
	stats    stats
	run      context.Context
	stop     context.CancelFunc
	spawning sync.Mutex
	done     sync.WaitGroup
}

// shard holds some of the keys.
type shard struct {
	mu    sync.Mutex
	keys  map[string]*entry
	dirty map[*entry]bool // entries with changes to flush
	name  []byte          // scratch memory
}

// New returns an engine that decides about all keys until Open.
func New(opt Options) (*Engine, error) {
	if opt.Now == nil || opt.Placement.Partitions == 0 ||
		opt.Namespaces[twotier.DefaultNamespace].Ladder == nil {
		return nil, errors.New("distinct: Options needs Now, Placement and a default namespace")
	}
	if opt.Ack == twotier.AckDefault {
		opt.Ack = twotier.AckMemory
	}
	opt.Ack = min(opt.Ack, twotier.AckStore)
	if opt.Store == nil {
		opt.Ack = twotier.AckMemory
	}
	if opt.MaxMemory == 0 {
		opt.MaxMemory = 64 << 20
	}
	for _, d := range []struct {
		value  *time.Duration
		preset time.Duration
	}{
		{&opt.FlushInterval, 200 * time.Millisecond}, {&opt.VerifyInterval, 5 * time.Second},
		{&opt.Timeout, time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.preset
		}
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{opt: opt, spaces: map[string]space{}, seed: maphash.MakeSeed(),
		taking: make(chan struct{}, 1), loads: make(chan struct{}, loadsAtOnce),
		terms: make([]atomic.Int64, opt.Placement.Partitions)}
	for name, ns := range opt.Namespaces {
		e.spaces[name] = space{ns, cmp.Or(ns.MostValues, leaparray.DefaultMostValues)}
	}
	for i := range e.shards {
		sh := &e.shards[i]
		sh.keys, sh.dirty = map[string]*entry{}, map[*entry]bool{}
	}
	e.run, e.stop = context.WithCancel(context.Background())
	return e, nil
}

// Open starts to flush. owner reports the partitions that this node decides about, and gather asks
// the other nodes; both are nil if there are none.
func (e *Engine) Open(owner Owner, gather Gather) {
	e.owner, e.gather = owner, gather
	if e.opt.Store != nil {
		e.spawn(e.runFlush)
	} else {
		e.spawn(e.runSweep)
	}
}

// spawn runs fn unless the engine is closed. Close waits for it.
func (e *Engine) spawn(fn func()) (running bool) {
	e.spawning.Lock()
	defer e.spawning.Unlock()
	if e.run.Err() != nil {
		return false
	}
	e.done.Go(fn)
	return true
}

// Drain makes the engine refuse new values.
func (e *Engine) Drain() { e.draining.Store(true) }

// Close flushes until the store has everything or ctx is done, and stops. The error reports the
// number of keys with unflushed values.
func (e *Engine) Close(ctx context.Context) error {
	e.Drain()
	err := e.Flush(ctx)
	if err == nil && e.opt.Store != nil {
		left := e.unflushed(func(en *entry) bool { return en.seq > en.handed })
		if left > 0 {
			err = fmt.Errorf("%w (keys: %d)", ErrForeign, left)
		}
	}
	e.spawning.Lock()
	e.stop()
	e.spawning.Unlock()
	e.done.Wait()
	return err
}

// Hash returns the hash of a value. All nodes agree on it. Who does not know the seed can't find
// values that collide.
func (e *Engine) Hash(value []byte) uint64 {
	var short [128]byte // so that the hash of a short value needs no memory
	b := append(binary.LittleEndian.AppendUint64(short[:0], e.opt.Placement.Seed), value...)
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:8])
}

// Partition returns the partition of a key.
func (e *Engine) Partition(op *Op) int { return e.opt.Placement.Of(op.NS, op.Key) }

// namespace returns the configuration of a namespace.
func (e *Engine) namespace(ns []byte) space {
	if s, ok := e.spaces[string(ns)]; ok {
		return s
	}
	return e.spaces[twotier.DefaultNamespace]
}

// lock returns the locked shard of a key, and the key's name in the shard.
func (e *Engine) lock(op *Op) (sh *shard, id []byte) {
	check := twotier.Check{NS: op.NS, Key: op.Key}
	var short [128]byte
	id = check.AppendName(short[:0])
	sh = &e.shards[maphash.Bytes(e.seed, id)%shards]
	sh.mu.Lock()
	sh.name = append(sh.name[:0], id...)
	return sh, sh.name
}

// entry returns the entry of a key. If it is missing and create is set, entry adds it if there is
// room.
func (e *Engine) entry(sh *shard, id []byte, op *Op, create bool) (*entry, error) {
	en := sh.keys[string(id)]
	if en != nil || !create {
		return en, nil
	}
	if e.bytes.Load() > e.opt.MaxMemory {
		return nil, errFull
	}
	en = &entry{id: string(id), partition: e.Partition(op), space: e.namespace(op.NS),
		used: time.Now()}
	en.ns, en.key = append(en.ns, op.NS...), append(en.key, op.Key...)
	sh.keys[en.id] = en
	e.keys.Add(1)
	e.updateMemory(en)
	return en, nil
}

// errFull wraps twotier.ErrFull.
var errFull = fmt.Errorf("%w (of distinct values)", twotier.ErrFull)

// updateMemory updates the memory accounted to an entry.
func (e *Engine) updateMemory(en *entry) {
	n := en.measure()
	e.bytes.Add(n - en.bytes)
	en.bytes = n
}

// updateDirty adds an entry to sh.dirty if it has unflushed changes, or else removes it.
func (sh *shard) updateDirty(en *entry) {
	if en.dirty() {
		sh.dirty[en] = true
	} else {
		delete(sh.dirty, en)
	}
}

// forget removes an entry of a locked shard.
func (e *Engine) forget(sh *shard, en *entry) {
	if sh.keys[en.id] == en {
		delete(sh.keys, en.id)
		e.keys.Add(-1)
		e.bytes.Add(-en.bytes)
		en.bytes = 0
	}
}
