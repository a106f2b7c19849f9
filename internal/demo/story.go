package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Cluster kills and starts the nodes of a demonstration, by their index.
type Cluster interface {
	// Kill ends a node as SIGKILL ends its process: it hands over nothing, flushes nothing and
	// doesn't announce that it leaves. It does nothing if the node does not run.
	Kill(node int) error
	// Start starts a killed node at its address, without anything that it had in memory.
	Start(ctx context.Context, node int) error
	// KeyOf returns a key that begins with prefix and that the node owns, if it owns any.
	KeyOf(node int, prefix string) string
}

// StoryOptions configure a [Story].
type StoryOptions struct {
	// Step is the length of a chapter, which takes longer until its work is done.
	Step time.Duration
	// Token may change rules, lift bans, and steer the story. Required.
	Token string
	// Cluster kills and starts nodes. Required.
	Cluster Cluster
	// Out receives the announcements. Required.
	Out io.Writer
}

// Story plays its chapters one after the other. Make one with [NewStory], start it with Open, stop
// it with Close.
type Story struct {
	opt      StoryOptions
	servers  []string // URLs of the nodes
	traffic  *Traffic
	names    []string // of the nodes
	chapters []chapter
	orders   chan string
	stop     context.CancelFunc
	done     sync.WaitGroup
	proof    proof // only used by playAll

	mu  sync.Mutex
	now Progress
}

// Progress is the state of a story.
type Progress struct {
	// Chapters are the names and titles of all chapters.
	Chapters []Title `json:"chapters"`
	// Chapter is the index of the current chapter, which is the last one once the story is over:
	// Over is then true. It is -1 before the first one.
	Chapter int  `json:"chapter"`
	Over    bool `json:"over"`
	// Text describes the current chapter, and Look where to see it. LookAt is the id of that
	// section of the page.
	Text   string `json:"text"`
	Look   string `json:"look"`
	LookAt string `json:"look_at"`
	// Figures are the observations in the chapter so far.
	Figures string `json:"figures"`
	// Problem is the reason why the work of the chapter failed, if it did.
	Problem string `json:"problem,omitempty"`
	// LeftMS is the time until the next chapter, and StepMS the length of a chapter, in
	// milliseconds.
	LeftMS int64 `json:"left_ms"`
	StepMS int64 `json:"step_ms"`

	ends    time.Time
	figures func() string // nil if Figures is final
}

// Title is the name and the title of a chapter.
type Title struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

type chapter struct {
	Title
	text, look, lookAt string
	act                act
}

// act does the work of a chapter, and returns a source of observations.
type act = func(ctx context.Context) (figures func() string, err error)

// NewStory returns a story that has not begun.
func NewStory(opt StoryOptions) *Story {
	s := &Story{opt: opt, orders: make(chan string, 1)}
	s.chapters = s.makeChapters()
	s.now = Progress{Chapter: -1, StepMS: opt.Step.Milliseconds()}
	for _, c := range s.chapters {
		s.now.Chapters = append(s.now.Chapters, c.Title)
	}
	return s
}

// Open begins the story about the traffic to the nodes at these URLs, which have these names. It
// ends when ctx is done or Close is called.
func (s *Story) Open(ctx context.Context, servers, names []string, traffic *Traffic) {
	s.servers, s.names, s.traffic = servers, names, traffic
	ctx, s.stop = context.WithCancel(ctx)
	s.done.Go(func() { s.playAll(ctx) })
}

// askTimeout bounds one request.
const askTimeout = 10 * time.Second

// Close ends the story, and waits until nothing of it runs any more.
func (s *Story) Close() {
	if s.stop == nil {
		return
	}
	s.stop()
	s.done.Wait()
}

// Show returns the progress as JSON.
func (s *Story) Show() []byte {
	text, _ := json.Marshal(s.Progress()) // it can be encoded
	return text
}

// Progress returns how far the story is.
func (s *Story) Progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.now
	if p.figures != nil {
		p.Figures = p.figures()
	}
	if !p.Over {
		p.LeftMS = max(0, time.Until(p.ends).Milliseconds())
	}
	return p
}

// Steer has the story repeat the current chapter ("again"), go on to the next one ("next"), or go
// to the one with the given name, as soon as the current one has done its work.
func (s *Story) Steer(to string) error {
	if to != "again" && to != "next" && s.find(to) < 0 {
		return fmt.Errorf("want again, next or the name of a chapter, got %q", to)
	}
	for {
		select {
		case s.orders <- to:
			return nil
		default:
		}
		select {
		case <-s.orders: // the newer order counts
		default:
		}
	}
}

// find returns the index of a chapter, or -1 if there is none with that name.
func (s *Story) find(name string) int {
	return slices.IndexFunc(s.chapters, func(c chapter) bool { return c.Name == name })
}

// playAll plays chapters until ctx is done.
func (s *Story) playAll(ctx context.Context) {
	at := 0
	for ctx.Err() == nil {
		s.play(ctx, at)
		order := s.dwell(ctx)
		if ctx.Err() != nil {
			return
		}
		s.finish()
		if order == "" && at == len(s.chapters)-1 {
			s.set(func(p *Progress) { p.Over = true })
			fmt.Fprint(s.opt.Out, "\nThe story is over; the traffic goes on. Buttons on the page "+
				"repeat chapters.\n")
			select {
			case order = <-s.orders:
			case <-ctx.Done():
				return
			}
		}
		switch order {
		case "", "next":
			at = (at + 1) % len(s.chapters)
		case "again":
		default:
			at = s.find(order)
		}
	}
}

// play announces a chapter and does its work.
func (s *Story) play(ctx context.Context, at int) {
	c := &s.chapters[at]
	s.set(func(p *Progress) {
		p.Chapter, p.Over, p.Text, p.Look, p.LookAt = at, false, c.text, c.look, c.lookAt
		p.Figures, p.Problem, p.figures = "", "", nil
		p.ends = time.Now().Add(s.opt.Step)
	})
	fmt.Fprintf(s.opt.Out, "\n[%d/%d] %s\n%s%s", at+1, len(s.chapters), c.Title.Title,
		indent(c.text), indent("Look at: "+c.look))
	figures, err := c.act(ctx)
	s.set(func(p *Progress) {
		p.figures = figures
		if err != nil && ctx.Err() == nil {
			p.Problem = err.Error()
		}
		// The observation lasts for at least half a step.
		if until := time.Now().Add(s.opt.Step / 2); p.ends.Before(until) {
			p.ends = until
		}
	})
}

// dwell waits for the end of a chapter, and returns the order that has come meanwhile.
func (s *Story) dwell(ctx context.Context) (order string) {
	end := time.NewTimer(time.Until(s.now.ends)) // only this goroutine changes it
	defer end.Stop()
	select {
	case <-end.C:
	case order = <-s.orders:
	case <-ctx.Done():
	}
	return order
}

// finish announces the observations.
func (s *Story) finish() {
	p := s.Progress()
	s.set(func(now *Progress) { now.Figures, now.figures = p.Figures, nil })
	if p.Figures != "" {
		fmt.Fprint(s.opt.Out, indent("=> "+p.Figures))
	}
	if p.Problem != "" {
		fmt.Fprint(s.opt.Out, indent("this did not work: "+p.Problem))
	}
}

func (s *Story) set(change func(*Progress)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.now)
}

// lineWidth is the width of announcements, in characters.
const lineWidth = 92

// indent wraps a text and indents its lines.
func indent(text string) string {
	var out strings.Builder
	line := "  "
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > lineWidth {
			out.WriteString(line + "\n")
			line = "  "
		}
		if line != "  " {
			line += " "
		}
		line += word
	}
	out.WriteString(line + "\n")
	return out.String()
}
