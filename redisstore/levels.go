package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/leaparray"
)

// levels are all levels that the keys of a namespace are, or were, counted by, in the order of
// their numbers in the fields of a Hash. A number stays with its width, so counts can be read by
// any ladder that has a level of that width.
type levels []level

// level is what is known of the buckets of one width. Its text is that of a level in a ladder,
// followed by /MOST if some process keeps more than all of them do or will, and by +MORE@SINCE
// while more buckets fill.
type level struct {
	width time.Duration
	// count is how many buckets every process keeps, and has kept for so long that they have
	// everything that was counted. 0 if some process does not count by this level.
	count int
	// more is how many buckets every process keeps since that moment, in unix milliseconds; 0 if
	// not more than count.
	more  int
	since int64
	// most is how many buckets some process keeps, or did when the processes last differed; 0 if
	// not more than count and more. Nobody deletes them before that.
	most int
}

// settling is how much later than it is noticed a change of what all processes count by is taken to
// be: their clocks and the buckets of events that are ahead of them may differ by less.
const settling = 2 * leaparray.MaxAhead

var errLevels = errors.New("not a list of levels")

func levelsOf(l *leaparray.Ladder) (all levels) {
	for _, lv := range l.Levels() {
		all = append(all, level{width: lv.Width, count: lv.Count})
	}
	return all
}

func (v level) String() string {
	// A ladder of one level formats its width.
	l, err := leaparray.NewLadder(leaparray.Level{Width: v.width, Count: 1})
	if err != nil {
		return err.Error() // every level was read by parseLevels, or is of a ladder
	}
	text := strings.TrimSuffix(l.String(), "1") + strconv.Itoa(v.count)
	if v.most > 0 {
		text += "/" + strconv.Itoa(v.most)
	}
	if v.more > 0 {
		text += fmt.Sprintf("+%d@%d", v.more, v.since)
	}
	return text
}

func (all levels) String() string {
	parts := make([]string, len(all))
	for i := range all {
		parts[i] = all[i].String()
	}
	return strings.Join(parts, ", ")
}

// parseLevels is the inverse of levels.String, and reads the text of a ladder.
func parseLevels(text string) (all levels, err error) {
	for part := range strings.SplitSeq(text, ", ") {
		v, err := parseLevel(part)
		if err != nil || all.find(v.width) >= 0 {
			return nil, fmt.Errorf("%w: %q", errLevels, text)
		}
		all = append(all, v)
	}
	if len(all) > leaparray.MaxIDs {
		return nil, fmt.Errorf("%w: %q", errLevels, text)
	}
	return all, nil
}

func parseLevel(text string) (v level, err error) {
	width, counts, _ := strings.Cut(text, " x ")
	counts, growth, grows := strings.Cut(counts, "+")
	count, most, differ := strings.Cut(counts, "/")
	var errs [5]error
	v.width, errs[0] = time.ParseDuration(width)
	v.count, errs[1] = strconv.Atoi(count)
	if differ {
		v.most, errs[4] = strconv.Atoi(most)
	}
	if grows {
		more, since, _ := strings.Cut(growth, "@")
		v.more, errs[2] = strconv.Atoi(more)
		v.since, errs[3] = strconv.ParseInt(since, 10, 64)
	}
	if v.width < leaparray.MinWidth || v.count < 0 || v.more < 0 || v.most < 0 {
		errs[0] = errLevels
	}
	return v, errors.Join(errs[:]...)
}

// find returns the number of the level with this width, -1 if there is none.
func (all levels) find(width time.Duration) int {
	return slices.IndexFunc(all, func(v level) bool { return v.width == width })
}

// complete returns how many buckets of a level have everything at a moment.
func (v level) complete(now int64) int {
	if v.more > 0 && now >= v.since+v.width.Milliseconds()*int64(v.more) {
		return v.more
	}
	return v.count
}

// fills reports whether a level has fewer buckets than it will have.
func (v level) fills(now int64) bool { return v.more > v.complete(now) }

// joinedBy returns the levels when a process begins to count by this ladder, which may know levels
// that the others lack and lack levels that they know. lessens reports that some level has fewer
// complete buckets than before. There may be no room for its levels.
func (all levels) joinedBy(l *leaparray.Ladder, now int64) (after levels, lessens bool, err error) {
	after = slices.Clone(all)
	keeps := map[time.Duration]int{}
	for _, lv := range l.Levels() {
		keeps[lv.Width] = lv.Count
		if after.find(lv.Width) < 0 {
			after = append(after, level{width: lv.Width, most: lv.Count})
		}
	}
	if len(after) > leaparray.MaxIDs {
		return nil, false, fmt.Errorf("there would be buckets of %d widths, and a key can have "+
			"those of %d", len(after), leaparray.MaxIDs)
	}
	for i := range all {
		v := &after[i]
		complete, kept := v.complete(now), keeps[v.width]
		most := max(v.count, v.more, v.most, kept)
		switch {
		case kept < complete:
			lessens = true
			*v = level{width: v.width, count: kept}
		case kept < v.more:
			*v = level{width: v.width, count: complete}
		}
		if v.most = 0; most > max(v.count, v.more) {
			v.most = most
		}
	}
	return after, lessens, nil
}

// sharedBy returns the levels when all processes are known to count by this ladder.
func (all levels) sharedBy(l *leaparray.Ladder, now int64) levels {
	after := slices.Clone(all)
	for i := range after {
		after[i].most = 0
	}
	for _, lv := range l.Levels() {
		i := after.find(lv.Width)
		if i < 0 {
			continue // this process has not joined yet
		}
		if v := &after[i]; lv.Count > v.complete(now) && lv.Count > v.more {
			*v = level{width: v.width, count: v.complete(now), more: lv.Count,
				since: now + settling.Milliseconds()}
		}
	}
	return after
}

// storedLevels returns how the levels of a ladder are stored, or false if they lack one of its own.
func (all levels) storedLevels(l *leaparray.Ladder, now int64) (t leaparray.StoredLevels, ok bool) {
	for id, v := range all {
		t.All[id] = leaparray.Level{Width: v.width, Count: max(v.count, v.more, v.most, 1)}
	}
	for i, lv := range l.Levels() {
		id := all.find(lv.Width)
		if id < 0 {
			return t, false
		}
		t.ID[i] = uint8(id)
		t.Reach[i] = l.Width(i) * int64(min(lv.Count, all[id].complete(now)))
	}
	return t, true
}
