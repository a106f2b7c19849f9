package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// liveTop continuously shows the keys with the most events and the keys with the most refusals.
type liveTop struct {
	s      *session
	screen *screen
	n      int    // keys of each list; 0: as many as fit
	order  byte   // the key that was pressed for it: c, r or k
	window string // for all counts of keys
	seen   topView
	at     time.Time // when that was asked for; zero if nothing has been seen
	err    error     // of the last try
}

// topView is the displayed state.
type topView struct {
	rows    []topRow
	members []member
	mode    string
	// allowed, refused and shadow count the decisions of all nodes within rateWindow.
	allowed, refused, shadow int64
}

// topRow is a key with its numbers; -1 stands for a number that is not among the largest.
type topRow struct {
	ns, key         string
	events, refused int64
}

// rateWindow is the window for measuring decisions per second: the history of verdicts is sometimes
// a second behind.
const rateWindow = 10 * time.Second

// watchTop shows the keys until the user presses q or Ctrl-C.
func (s *session) watchTop(ctx context.Context, t *liveTop) (err error) {
	in, out, _ := s.terminals()
	if t.screen, err = openScreen(in, out); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		if failed := t.screen.close(); err == nil {
			err = failed
		}
	}()
	t.s = s
	keys := make(chan byte)
	go t.screen.runKeys(ctx, keys)
	return t.run(ctx, keys)
}

// look is the outcome of one attempt to read everything.
type look struct {
	view topView
	at   time.Time
	err  error
}

// run draws whenever the state changes, and asks again a second after the last answer.
func (t *liveTop) run(ctx context.Context, keys <-chan byte) error {
	looks := make(chan look, 1)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for asking := false; ; {
		if err := t.screen.draw(t.lines()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			if t.press(key) {
				return nil
			}
			if !asking {
				pause.Reset(0) // there may be another window to look at
			}
		case l := <-looks:
			asking = false
			if t.err = l.err; l.err == nil {
				t.seen, t.at = l.view, l.at
			}
			pause.Reset(watchPause)
		case <-pause.C:
			asking = true
			_, height := t.screen.size()
			go t.s.runLook(ctx, cmp.Or(t.n, height), t.window, looks)
		}
	}
}

// runLook reads everything once.
func (s *session) runLook(ctx context.Context, n int, window string, looks chan<- look) {
	l := look{at: time.Now()}
	l.view, l.err = s.lookAtTop(ctx, n, window)
	looks <- l // has room for it
}

// press executes the command of a key press, and reports whether to quit.
func (t *liveTop) press(key byte) (quit bool) {
	switch key {
	case 'q', 'Q', ctrlC, ctrlD:
		return true
	case 'c', 'r', 'k':
		t.order = key
	case 'w':
		windows := []string{"1m", "1h", "24h"}
		t.window = windows[(slices.Index(windows, t.window)+1)%len(windows)]
	}
	return false
}

// lookAtTop asks for everything on display, for up to n keys.
func (s *session) lookAtTop(ctx context.Context, n int, window string) (v topView, err error) {
	var cluster clusterView
	if err := s.call(ctx, http.MethodGet, "/v1/cluster", nil, nil, &cluster); err != nil {
		return v, err
	}
	v.members, v.mode = cluster.Members, cluster.Mode
	for verdict, to := range map[string]*int64{"allowed": &v.allowed, "refused": &v.refused,
		"shadow_refused": &v.shadow} {
		if *to, err = s.decided(ctx, verdict); err != nil {
			return v, err
		}
	}
	query := url.Values{"n": {strconv.Itoa(min(n, 1000))}, "window": {window}}
	busiest, err := s.topKeys(ctx, query)
	if err != nil {
		return v, err
	}
	query.Set("by", "refused")
	refused, err := s.topKeys(ctx, query)
	v.rows = mergeTop(busiest, refused)
	return v, err
}

// decided returns how many acquires of all nodes had a verdict within rateWindow.
func (s *session) decided(ctx context.Context, verdict string) (int64, error) {
	var answer struct{ Counts []windowCount }
	err := s.call(ctx, http.MethodGet, "/v1/count",
		keyQuery("@verdicts", "@all/"+verdict, rateWindow.String()), nil, &answer)
	if err != nil || len(answer.Counts) == 0 {
		return 0, err
	}
	return answer.Counts[0].Count, nil
}

// mergeTop makes one row for each key of two lists.
func mergeTop(busiest, refused []topKey) (rows []topRow) {
	at := map[[2]string]int{}
	for _, k := range busiest {
		at[[2]string{k.NS, k.Key}] = len(rows)
		rows = append(rows, topRow{k.NS, k.Key, k.Count, -1})
	}
	for _, k := range refused {
		if i, ok := at[[2]string{k.NS, k.Key}]; ok {
			rows[i].refused = k.Count
		} else {
			rows = append(rows, topRow{k.NS, k.Key, -1, k.Count})
		}
	}
	return rows
}

// sortTop sorts rows in the order that a key press stands for.
func sortTop(rows []topRow, order byte) {
	slices.SortStableFunc(rows, func(a, b topRow) int {
		byName := cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.ns, b.ns))
		byCount := cmp.Compare(b.events, a.events)
		byRefused := cmp.Compare(b.refused, a.refused)
		switch order {
		case 'k':
			return byName
		case 'r':
			return cmp.Or(byRefused, byCount, byName)
		}
		return cmp.Or(byCount, byRefused, byName)
	})
}

// lines returns the whole picture. The names come last in a line, because they may be of any length
// and their characters of any width.
func (t *liveTop) lines() []string {
	width, height := t.screen.size()
	foot := "q: quit  sort by c: events  r: refused  k: key  w: window"
	if width < len(foot) {
		foot = "q c r k w"
	}
	lines := append([]string{t.title(width)}, t.status()...)
	if t.err != nil {
		lines = append(lines, t.s.paint(red, t.failure()))
	} else if height >= roomy {
		lines = append(lines, "")
	}
	room := max(height-len(lines)-2, 0) // minus the head of the table and the foot
	lines = append(lines, t.table(width, room)...)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, foot)
	return lines[:min(len(lines), height)]
}

func (t *liveTop) title(width int) string {
	by := map[byte]string{'c': "events", 'r': "refused", 'k': "key"}[t.order]
	title := fmt.Sprintf("twotier top, last %s by %s", t.window, by)
	if long := title + ", " + t.s.client.address(); len(long) <= width {
		return long
	}
	return title
}

// failure describes the error, and the time of the figures that are still shown.
func (t *liveTop) failure() string {
	text := strings.Join(strings.Fields(t.err.Error()), " ")
	if t.at.IsZero() {
		return text
	}
	return "as of " + t.at.Format(time.TimeOnly) + ": " + text
}

// status returns lines about the members and the rates of decisions.
func (t *liveTop) status() []string {
	if t.at.IsZero() {
		return []string{"asking " + t.s.client.address()}
	}
	var names, others []string
	for i := range t.seen.members {
		m := &t.seen.members[i]
		names = append(names, printable(m.ID))
		if m.State != "alive" {
			others = append(others, printable(m.ID)+" "+printable(m.State))
		}
	}
	members := fmt.Sprintf("%d %s, %s: %s", len(names), plural(len(names), "member"),
		printable(t.seen.mode), strings.Join(names, " "))
	if others != nil {
		members += t.s.paint(red, ", "+strings.Join(others, ", "))
	}
	rate := func(n int64) string {
		return strconv.FormatFloat(float64(max(n, 0))/rateWindow.Seconds(), 'f', 1, 64)
	}
	return []string{members, fmt.Sprintf("a second: %s allowed, %s refused, %s in shadow",
		rate(t.seen.allowed), rate(t.seen.refused), rate(t.seen.shadow))}
}

// roomy is the height from which on a blank line fits.
const roomy = 12

// narrow is the width below which the column of namespaces is left out.
const narrow = 50

// table returns the head and up to room rows.
func (t *liveTop) table(width, room int) []string {
	rows := slices.Clone(t.seen.rows)
	sortTop(rows, t.order)
	space := 0
	for _, r := range rows {
		space = max(space, len(printable(r.ns)))
	}
	space = max(space, len("NAMESPACE"))
	name := func(ns, key string) string {
		if width < narrow {
			return key
		}
		return fmt.Sprintf("%-*s  %s", space, ns, key)
	}
	lines := []string{fmt.Sprintf("%10s %9s  %s", "EVENTS", "REFUSED", name("NAMESPACE", "KEY"))}
	if len(rows) == 0 && !t.at.IsZero() {
		return append(lines, "      none")
	}
	for _, r := range rows[:min(len(rows), room)] {
		lines = append(lines, fmt.Sprintf("%10s %9s  %s", known(r.events), known(r.refused),
			name(printable(r.ns), printable(r.key))))
	}
	return lines
}

func known(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}
