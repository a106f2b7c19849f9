package twotier

import (
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier/internal/zones"
)

// periodTable holds the periods and time zones in use. Only valid ones are kept, and their names
// are bounded: the database has some hundred zones, and each has 63 periods.
type periodTable struct {
	mu      sync.RWMutex
	periods map[string]*Period // by their short form
	zones   map[string]*time.Location
}

// interned makes equal periods the same value, so that limits can be compared. It also spares each
// request the time to read a zone from the database.
var interned = periodTable{}

// period returns the period of that short form if it is in use, or nil.
func (t *periodTable) period(text string) *Period {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.periods[text]
}

// add adds a period, and returns it or an equal one that was added before.
func (t *periodTable) add(p *Period) *Period {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.periods[p.text]; known != nil {
		return known
	}
	if t.periods == nil {
		t.periods = map[string]*Period{}
	}
	t.periods[p.text] = p
	return p
}

// zone returns the time zone of that name.
func (t *periodTable) zone(name string) (*time.Location, error) {
	t.mu.RLock()
	known := t.zones[name]
	t.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	if !isZoneName(name) {
		return nil, unknownZone(name)
	}
	at, err := zones.Load(name)
	if err != nil {
		return nil, unknownZone(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.zones == nil {
		t.zones = map[string]*time.Location{}
	}
	t.zones[name] = at
	return at, nil
}

func unknownZone(name string) error {
	return periodError("zone", "unknown time zone %.64q, want a name such as Europe/Lisbon", name)
}

// isZoneName reports whether a name may be one of the database: these begin with a capital letter.
// Other files next to the database depend on the machine, and so do the zone Local and names that
// only a file system finds: with more slashes, each zone would have any number of them.
func isZoneName(name string) bool {
	if len(name) > maxZoneName || name == "Local" || strings.Contains(name, "//") {
		return false
	}
	for i, c := range []byte(name) {
		capital := 'A' <= c && c <= 'Z'
		other := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '/' || c == '_' || c == '-' ||
			c == '+'
		if !capital && (i == 0 || !other) {
			return false
		}
	}
	return true
}

// maxZoneName bounds the names of time zones, in bytes.
const maxZoneName = 48
