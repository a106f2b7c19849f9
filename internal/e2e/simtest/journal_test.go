package simtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// journal records the answers of clients and the changes in Redis, to be printed when a schedule
// fails.
type journal struct {
	mu    sync.Mutex
	lines []entry
}

// entry is formatted only when the journal is read.
type entry struct {
	at     time.Time
	format string
	args   []any
}

func (e *entry) String() string {
	return e.at.Format("05.000000 ") + fmt.Sprintf(e.format, e.args...)
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, a := range args {
		if b, ok := a.([]byte); ok {
			args[i] = string(b) // copied, because the caller reuses it
		}
	}
	j.lines = append(j.lines, entry{time.Now(), format, args})
}

// about returns the last lines about a key.
func (j *journal) about(key string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for i := range j.lines {
		line := j.lines[i].String()
		if strings.Contains(line, " "+key+" ") || strings.Contains(line, "---") {
			found = append(found, line)
		}
	}
	return strings.Join(found[max(0, len(found)-5000):], "\n")
}

// noted is the simulated Redis, with a journal.
type noted struct {
	*embedded.Store
	w *world
}

// Exchange implements syncer.Store.
func (s noted) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		s.w.atomic.Lock()
		if r.Seq == 0 && !r.Republish { // a round that only reads
			s.Store.Exchange(ctx, []*syncer.Round{r})
		} else {
			s.write(ctx, r)
		}
		s.w.sources.note(r)
		s.w.atomic.Unlock()
	}
}

// sources record the last writer of each key, and when another writer last read it after that.
type sources struct {
	writer map[string]string
	read   map[string]time.Time
}

// note records the counts and reads of a round. A round that changed nothing, because it was
// repeated or Redis had lost data, is recorded like any other.
func (s *sources) note(r *syncer.Round) {
	if s.writer == nil {
		s.writer, s.read = map[string]string{}, map[string]time.Time{}
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		key := string(k.Key)
		if by := s.writer[key]; k.Load && by != "" && by != r.Writer {
			s.read[key] = time.Now()
		}
		if len(k.Adds) > 0 {
			s.writer[key] = r.Writer
		}
	}
}

// write applies a round that changes something, and records the changes. Nothing else happens
// meanwhile.
func (s noted) write(ctx context.Context, r *syncer.Round) {
	before := make([]int64, len(r.Keys))
	for i := range r.Keys {
		before[i] = s.w.stored(string(r.Keys[i].Key))
	}
	s.Store.Exchange(ctx, []*syncer.Round{r})
	for i := range r.Keys {
		key, delta := string(r.Keys[i].Key), sumOf(r.Keys[i].Adds)
		if after := s.w.stored(key); delta != 0 || after != before[i] {
			s.w.journal.note("redis: %s %+d (now %d, was %d) from %s seq %d acked %d, lost %v, "+
				"republish %v",
				key, delta, after, before[i], r.Writer, r.Seq, r.Acked, r.Lost, r.Republish)
		}
	}
}
