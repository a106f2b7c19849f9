package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// ladderField is the beginning of the fields of tt:meta that say, for each namespace that some
// process has listed, which levels its keys are counted by.
const ladderField = "ladder:"

// ladderState is what is known of the ladders of this process and of others, by namespace.
type ladderState struct {
	// stored says how the levels of Options.Ladders are stored.
	stored   map[string]*atomic.Pointer[leaparray.StoredLevels]
	levels   map[string]levels // as they were read last
	looked   time.Time         // when that was, by Redis's clock
	lessened bool              // see levels.joinedBy
	// learned is what others said of the levels before Redis could be asked, see Store.Learn.
	learned atomic.Pointer[map[string]levels]
	numbers atomic.Pointer[string] // see Store.Numbers
}

// ladderOf returns the ladder by which this process counts the keys of a namespace.
func (s *Store) ladderOf(ns string) *leaparray.Ladder {
	if l, ok := s.opt.Ladders[ns]; ok {
		return l
	}
	return s.opt.Ladders[syncer.DefaultNamespace]
}

// namespaces returns the namespaces that this process or another one has listed.
func (s *Store) namespaces(have map[string]string) []string {
	all := maps.Clone(s.opt.Ladders)
	for field := range have {
		if ns, ok := strings.CutPrefix(field, ladderField); ok {
			all[ns] = s.ladderOf(ns)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// levelsOf returns the levels of a namespace, nil if nobody has counted it yet. What this process
// knows is true if Redis has lost it, or has something else since it did: counts in memory are
// numbered by it. A namespace that nobody has listed was counted like the default one.
func (s *Store) levelsOf(have map[string]string, ns string) (levels, error) {
	text, ok := have[ladderField+ns]
	if !ok && ns != syncer.DefaultNamespace && s.ladders.known(ns) == nil {
		return s.levelsOf(have, syncer.DefaultNamespace)
	}
	known := s.ladders.known(ns)
	if !ok {
		return known, nil
	}
	all, err := parseLevels(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the field %q of the hash %s: %w", ErrMismatch, ladderField+ns,
			metaKey, err)
	}
	for i := range min(len(known), len(all)) {
		if known[i].width != all[i].width {
			return known, nil
		}
	}
	return all, nil
}

// levelChange is what has to be done about the levels of the namespaces.
type levelChange struct {
	after   map[string]levels // by namespace
	args    []any             // of the script that writes what has changed
	lessens bool              // see levels.joinedBy
}

// changeOfLevels returns what the levels are once this process counts, and if shared is set, once
// it is known that all processes count by the ladders of this one.
func (s *Store) changeOfLevels(have map[string]string, now int64,
	shared bool) (c levelChange, err error) {
	c.after = map[string]levels{}
	for _, ns := range s.namespaces(have) {
		l := s.ladderOf(ns)
		before, err := s.levelsOf(have, ns)
		if err != nil {
			return c, err
		}
		if before == nil {
			before = levelsOf(l)
		}
		after, lessens, err := before.joinedBy(l, now)
		if err != nil {
			return c, fmt.Errorf("%w: namespace %s: %w: %s; delete the field %q of the hash %s "+
				"once those counts don't matter", ErrMismatch, ns, err, before, ladderField+ns,
				metaKey)
		}
		if shared {
			after = after.sharedBy(l, now)
		}
		c.after[ns], c.lessens = after, c.lessens || lessens
		if text := after.String(); have[ladderField+ns] != text {
			c.args = append(c.args, ladderField+ns, have[ladderField+ns], text)
		}
	}
	return c, s.numberedAlike(c.after)
}

// numberedAlike refuses levels of a namespace that this process counts by the default ladder if
// they have other numbers than by that. It could not know of them when it started.
func (s *Store) numberedAlike(all map[string]levels) error {
	usual := all[syncer.DefaultNamespace]
	for ns, of := range all {
		if s.joining.Load() || s.opt.Ladders[ns] != nil {
			continue
		}
		for _, lv := range s.ladderOf(ns).Levels() {
			if of.find(lv.Width) != usual.find(lv.Width) {
				return fmt.Errorf("%w: its counts of namespace %s are numbered as %s, which this "+
					"process did not know when it started: start it again", ErrMismatch, ns, of)
			}
		}
	}
	return nil
}

// agreeOnLevels writes what has to change about the levels, and puts them in force here. It reports
// false if another process was faster.
func (s *Store) agreeOnLevels(ctx context.Context, have map[string]string,
	shared bool) (done bool, err error) {
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return false, fmt.Errorf("time: %w", err)
	}
	c, err := s.changeOfLevels(have, now.UnixMilli(), shared)
	if err != nil {
		return false, err
	}
	if len(c.args) > 0 {
		if done, err := s.changeMeta(ctx, c.args); !done || err != nil {
			return false, err
		}
	}
	s.ladders.lessened = s.ladders.lessened || c.lessens
	s.useLevels(c.after, now)
	return true, nil
}

// useLevels puts levels in force on this process.
func (s *Store) useLevels(all map[string]levels, now time.Time) {
	s.ladders.levels, s.ladders.looked = all, now
	numbers := s.numbersOf(all)
	s.ladders.numbers.Store(&numbers)
	for name, l := range s.opt.Ladders {
		if s.ladders.stored[name].Load() == nil && all[name].String() == l.String() {
			continue // as if nothing were said, which makes reads a little cheaper
		}
		if t, ok := all[name].storedLevels(l, now.UnixMilli()); ok {
			s.ladders.stored[name].Store(&t)
		}
	}
	s.setTTLs()
}

// addLadder adds the ladder of a namespace. How it is stored nobody knows yet.
func (s *Store) addLadder(ns string, l *leaparray.Ladder) {
	stored := new(atomic.Pointer[leaparray.StoredLevels])
	s.ladders.stored[ns], s.opt.Ladders[ns] = stored, l.StoredAs(stored.Load)
}

// Ladders returns the ladders of Options, with levels stored as Redis says, and once a probe has
// succeeded also those of namespaces that only others have listed: their keys are counted like
// those of the default namespace, but may be stored under other numbers. Call it before the store
// is used. Where other processes have other ladders, counters must be given these.
func (s *Store) Ladders() (map[string]*leaparray.Ladder, error) {
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	for ns := range s.ladders.levels {
		if s.opt.Ladders[ns] != nil {
			continue
		}
		l, err := leaparray.NewLadder(s.ladderOf(ns).Levels()...)
		if err != nil {
			return nil, err
		}
		s.addLadder(ns, l)
	}
	return maps.Clone(s.opt.Ladders), nil
}

// Compared reports whether the ladders were compared with what Redis has.
func (s *Store) Compared() bool { return s.compared.Load() }

// Join says that this process now counts, see Options.Joining. It reports whether others have to
// hear of that first, see FollowEvery: they would rely on buckets that this process does not count.
func (s *Store) Join(ctx context.Context) (lessens bool, err error) {
	s.readyMu.Lock()
	s.ladders.lessened = false
	s.ready.Store(false)
	s.joining.Store(false)
	s.readyMu.Unlock()
	err = s.Probe(ctx)
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	return s.ladders.lessened, err
}

// ensureJoined is ensureReady for what may write.
func (s *Store) ensureJoined(ctx context.Context) error {
	if s.ready.Load() && !s.joining.Load() {
		return nil
	}
	if s.joining.Load() {
		return fmt.Errorf("%w: this process has not joined the others yet", syncer.ErrNotApplied)
	}
	return s.ensureReady(ctx)
}

// FollowEvery is how often each process that uses the store must call [Store.Follow].
const FollowEvery = time.Second

// Follow learns by which ladders other processes count. shared says that all of them count by those
// of this one: then, once a level has filled, windows are read from it.
func (s *Store) Follow(ctx context.Context, shared bool) error {
	if !s.ready.Load() {
		return nil // the probe before the next exchange does this
	}
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	have, err := s.readMeta(ctx)
	if err != nil {
		return err
	}
	if have[seedField] != s.agreement()[seedField] {
		// Redis has lost it, and perhaps nobody counts anything by which that would be noticed. The
		// next process to start would take what it finds, and not fit to the others.
		if err = s.agree(ctx); errors.Is(err, ErrMismatch) {
			s.opt.Logger.Error("Redis can't be used any more", "error", err)
			s.ready.Store(false)
			s.setFailed(err)
		}
		return err
	}
	_, err = s.agreeOnLevels(ctx, have, shared) // if another one was faster, the next time does it
	return err
}
