package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

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

// parse decodes the record of a version.
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
