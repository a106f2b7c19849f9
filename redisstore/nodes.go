package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// NodeRecord is the entry of a living process in Redis.
type NodeRecord struct {
	// Name identifies the process; no two processes share one.
	Name string
	// Text describes the process, in the form that it has chosen.
	Text string
	// Until is when the entry runs out by Redis's clock, in unix milliseconds, and Left how long
	// that is from now.
	Until int64
	Left  time.Duration
}

// Nodes keeps the entries of the living processes in Redis. Make one with [Store.Nodes]. It is safe
// for concurrent use.
type Nodes struct {
	store *Store
	key   string // of the Hash that has them
}

// Nodes returns the list of the living processes that use this Redis.
func (s *Store) Nodes() *Nodes { return &Nodes{s, s.prefix.NodesKey()} }

// Renew stores the entry of a process, which runs out after the lease, and returns all entries that
// have not run out. Of two processes that renew their entries at once, at least one finds both:
// each stores its own before it reads. It is safe to call it again if it fails.
func (n *Nodes) Renew(ctx context.Context, name, text string,
	lease time.Duration) (all []NodeRecord, err error) {
	if err := n.store.ensureReady(ctx); err != nil {
		return nil, err
	}
	client, clock, entries := n.store.conn.Client, time.Time{}, map[string]string{}
	server, err := n.store.conn.Primary(ctx, n.key)
	if err == nil {
		clock, err = server.Time(ctx).Result()
	}
	// If the process stands still from here on, its entry runs out sooner than it believes.
	now := clock.UnixMilli()
	if err == nil {
		pipe := client.Pipeline()
		pipe.HSet(ctx, n.key, name, fmt.Sprint(now+lease.Milliseconds(), " ", text))
		pipe.PExpire(ctx, n.key, lease)
		_, err = pipe.Exec(ctx)
	}
	if err == nil {
		entries, err = client.HGetAll(ctx, n.key).Result()
	}
	n.store.conn.RoundTrips.Add(3)
	if err != nil {
		scripts.ReloadSlots(ctx, client)
		return nil, fmt.Errorf("renew %s: %w", n.key, err)
	}
	var gone []any
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		entry := entries[name]
		end, record, _ := strings.Cut(entry, " ")
		until, _ := strconv.ParseInt(end, 10, 64)
		if until <= now {
			gone = append(gone, name, entry, "")
			continue
		}
		all = append(all, NodeRecord{name, record, until,
			time.Duration(until-now) * time.Millisecond})
	}
	if len(gone) > 0 { // unless one of them is renewed just now; what stays is deleted next time
		_ = n.store.scripts.Fields.Run(ctx, client, []string{n.key}, gone...).Err()
	}
	return all, nil
}

// Remove removes the entries of processes.
func (n *Nodes) Remove(ctx context.Context, names ...string) error {
	if err := n.store.ensureReady(ctx); err != nil {
		return err
	}
	if err := n.store.conn.Client.HDel(ctx, n.key, names...).Err(); err != nil {
		return fmt.Errorf("remove from %s: %w", n.key, err)
	}
	return nil
}

// newestField has the number of the newest version, and idField its ID. The other fields are
// versions by number.
const newestField, idField = "v", "i"

// Rules keeps the versions of the rules in Redis, for all nodes that use it. Make one with
// [Store.Rules]. It is safe for concurrent use.
type Rules struct {
	store *Store
	key   string // of the Hash that has them
}

// Rules returns the rules that this Redis keeps.
func (s *Store) Rules() *Rules { return &Rules{s, s.prefix.RulesKey()} }

// ruleRecord is a version as stored in Redis.
type ruleRecord struct {
	ID   string `json:"id"`
	Who  string `json:"who"`
	At   int64  `json:"at"` // unix milliseconds
	Text string `json:"text"`
}

func (r *Rules) parse(number int64, text string) (v twotier.RuleVersion, err error) {
	var record ruleRecord
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return v, fmt.Errorf("read version %d of %s: %w", number, r.key, err)
	}
	return twotier.RuleVersion{Number: number, ID: record.ID, Text: []byte(record.Text),
		Who: record.Who, At: time.UnixMilli(record.At)}, nil
}

// Newest returns the number and the ID of the newest version, 0 and "" if there is none.
func (r *Rules) Newest(ctx context.Context) (number int64, id string, err error) {
	if err := r.store.ensureReady(ctx); err != nil {
		return 0, "", err
	}
	fields, err := r.store.conn.Client.HMGet(ctx, r.key, newestField, idField).Result()
	if err != nil {
		return 0, "", fmt.Errorf("read %s: %w", r.key, err)
	}
	text := scripts.TextAt(fields, 0)
	if text == "" {
		return 0, "", nil
	}
	if number, err = strconv.ParseInt(text, 10, 64); err != nil {
		return 0, "", fmt.Errorf("read %s: %w", r.key, err)
	}
	return number, scripts.TextAt(fields, 1), nil
}

// Version returns the version with that number. The error is [twotier.ErrNoRuleVersion] if it is
// not kept.
func (r *Rules) Version(ctx context.Context, number int64) (v twotier.RuleVersion, err error) {
	if err := r.store.ensureReady(ctx); err != nil {
		return v, err
	}
	field := strconv.FormatInt(number, 10)
	text, err := r.store.conn.Client.HGet(ctx, r.key, field).Result()
	if errors.Is(err, redis.Nil) {
		return v, twotier.ErrNoRuleVersion
	}
	if err != nil {
		return v, fmt.Errorf("read version %d of %s: %w", number, r.key, err)
	}
	return r.parse(number, text)
}

// History returns the versions that are kept, the newest first.
func (r *Rules) History(ctx context.Context) (all []twotier.RuleVersion, err error) {
	if err := r.store.ensureReady(ctx); err != nil {
		return nil, err
	}
	fields, err := r.store.conn.Client.HGetAll(ctx, r.key).Result()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.key, err)
	}
	for field, text := range fields {
		number, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			continue // not a version
		}
		v, err := r.parse(number, text)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	newer := func(a, b twotier.RuleVersion) int { return cmp.Compare(b.Number, a.Number) }
	slices.SortFunc(all, newer)
	return all, nil
}

// Append stores v as the version after v.Number-1. The error is [twotier.ErrRulesMoved] if that is
// not the newest one, unless v itself is stored already. After any other error v may be stored,
// unless the error wraps [syncer.ErrNotApplied].
func (r *Rules) Append(ctx context.Context, v twotier.RuleVersion) error {
	stored, err := r.write(ctx, v.Number-1, v.Number-1, v)
	if err == nil && !stored {
		return twotier.ErrRulesMoved
	}
	return err
}

// Restore stores v, which Redis has lost, under its number, unless Redis has that version or a
// later one.
func (r *Rules) Restore(ctx context.Context, v twotier.RuleVersion) error {
	_, err := r.write(ctx, 0, v.Number-1, v)
	return err
}

// write stores v if the number of the newest version is from low to high. It reports whether v is
// stored, now or already: others may have stored the next versions since.
func (r *Rules) write(ctx context.Context, low, high int64, v twotier.RuleVersion) (bool, error) {
	encoded, err := json.Marshal(ruleRecord{v.ID, v.Who, v.At.UnixMilli(), string(v.Text)})
	if err != nil {
		return false, fmt.Errorf("%w: %w", syncer.ErrNotApplied, err)
	}
	if err := r.store.ensureReady(ctx); err != nil {
		return false, err
	}
	record, client, field := string(encoded), r.store.conn.Client, strconv.FormatInt(v.Number, 10)
	call := &scripts.Call{Script: r.store.scripts.Fields, Keys: []string{r.key}}
	for {
		have, err := client.HMGet(ctx, r.key, newestField, idField, field).Result()
		if err != nil {
			return false, fmt.Errorf("read %s: %w", r.key, call.Classify(err))
		}
		text := func(i int) string { return scripts.TextAt(have, i) }
		if n, _ := strconv.ParseInt(text(0), 10, 64); n < low || n > high {
			return text(2) == record, nil
		}
		call.Args = []any{newestField, text(0), field, idField, text(1), v.ID, field, text(2),
			record}
		if err := r.store.runOne(ctx, call); err != nil {
			return false, fmt.Errorf("write %s: %w", r.key, err)
		}
		if changed, _ := call.Cmd.Int64(); changed == 1 {
			break
		} // else another version was stored meanwhile, or the driver has sent this one twice
	}
	var old []string
	for n := range int64(twotier.MaxRuleVersions) {
		old = append(old, strconv.FormatInt(v.Number-twotier.MaxRuleVersions-n, 10))
	}
	_ = client.HDel(ctx, r.key, old...).Err() // the next version deletes what stays
	return true, nil
}
