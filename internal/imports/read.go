package imports

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// pageSize is how many elements of a key are read at a time.
const pageSize = 1000

// read reads keys. The error is about the connection; others are in the contents.
func (s *Source) read(ctx context.Context, found []string) (list []Content, err error) {
	seen := map[string]bool{}
	for _, key := range found {
		if values, ok := s.opt.Pattern.values(key); ok && !seen[key] {
			seen[key] = true
			list = append(list, Content{Key: key, Values: values, Format: s.opt.Format})
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	if err := s.findFormats(ctx, list); err != nil {
		return nil, err
	}
	for i := range list {
		c := &list[i]
		if c.Err != nil || c.Format == "" {
			continue
		}
		if err := s.readContent(ctx, c); isFatal(ctx, err) {
			return nil, err
		} else if err != nil {
			c.Err = err
		}
		if c.Events = merge(c.Events); len(c.Events) == 0 && c.Unreadable > 0 && c.Err == nil {
			c.Err = fmt.Errorf("no element is an event: %s", c.Example)
		}
	}
	return list, nil
}

// isFatal reports whether an error ends an import: it is not about one key.
func isFatal(ctx context.Context, err error) bool {
	var answer redis.Error
	var content *contentError
	return err != nil && (ctx.Err() != nil ||
		!errors.As(err, &answer) && !errors.As(err, &content))
}

// contentError is an error about the content of a key.
type contentError struct{ text string }

// Error returns its text.
func (e *contentError) Error() string { return e.text }

func contentErrorf(format string, args ...any) error {
	return &contentError{fmt.Sprintf(format, args...)}
}

// findFormats finds the format of each key, or an error in its place. A key that no longer exists
// has none.
func (s *Source) findFormats(ctx context.Context, list []Content) error {
	if err := s.pace.wait(ctx, len(list)); err != nil {
		return err
	}
	pipe := s.client.Pipeline()
	types := make([]*redis.StatusCmd, len(list))
	for i := range list {
		types[i] = pipe.Type(ctx, list[i].Key)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for i := range list {
		list[i].Format, list[i].Err = s.formatOf(types[i].Val())
	}
	return nil
}

// formatOf returns the format of a key of a type of Redis.
func (s *Source) formatOf(kind string) (Format, error) {
	found := map[string]Format{"zset": ZSet, "list": List, "hash": Hash}[kind]
	want := map[Format]string{ZSet: "zset", List: "list", Hash: "hash", Fixed: "string",
		Weighted: "string", RedisCell: "string", RedisRate: "string"}[s.opt.Format]
	switch {
	case kind == "none":
		return "", nil
	case want == kind:
		return s.opt.Format, nil
	case want != "":
		return "", contentErrorf("is a %s, and --format %s reads a %s", kind, s.opt.Format, want)
	case found != "":
		return found, nil
	case kind == "string" && s.opt.Pattern.hasTime():
		return Fixed, nil
	case kind == "string":
		return "", contentErrorf("is a string: name the limiter with --format fixed, weighted, " +
			"redis-cell or redis_rate")
	}
	return "", contentErrorf("is a %s, which no known limiter uses; make --pattern narrower", kind)
}

// readContent reads the events of a key.
func (s *Source) readContent(ctx context.Context, c *Content) error {
	switch c.Format {
	case ZSet:
		return s.readZSet(ctx, c)
	case List:
		return s.readList(ctx, c)
	case Hash:
		return s.readHash(ctx, c)
	case Fixed, Weighted:
		return s.readCounter(ctx, c)
	}
	return s.readGCRA(ctx, c)
}

// skip counts an element that is no event.
func (c *Content) skip(err error) {
	if c.Unreadable++; c.Example == "" {
		c.Example = err.Error()
	}
}

// readZSet reads the elements by score, a page at a time. Elements that the limiter removes
// meanwhile have lower scores than the next page.
func (s *Source) readZSet(ctx context.Context, c *Content) error {
	from, ties := "-inf", int64(0)
	for {
		if err := s.pace.wait(ctx, 1); err != nil {
			return err
		}
		page, err := s.client.ZRangeByScoreWithScores(ctx, c.Key, &redis.ZRangeBy{Min: from,
			Max: "+inf", Offset: ties, Count: pageSize}).Result()
		if err != nil {
			return err
		}
		for _, z := range page {
			ts, err := milliseconds(z.Score, s.opt.Unit)
			if err != nil {
				c.skip(fmt.Errorf("score %w; --unit names the unit", err))
				continue
			}
			s.addMember(c, ts, z.Member)
		}
		if len(page) < pageSize {
			return nil
		}
		last := page[len(page)-1].Score
		if text := formatNumber(last); text != from {
			from, ties = text, 0
		}
		for i := len(page) - 1; i >= 0 && page[i].Score == last; i-- {
			ties++
		}
	}
}

// addMember adds the events that a member stands for.
func (s *Source) addMember(c *Content, ts int64, member any) {
	if s.opt.Member == nil {
		c.Events = append(c.Events, Event{ts, 1})
		return
	}
	text := fmt.Sprint(member)
	values, ok := s.opt.Member.values(text)
	if !ok {
		c.skip(fmt.Errorf("member %.40q does not match --member", text))
		return
	}
	c.add(ts, values[placeNumber], fmt.Sprintf("member %.40q", text))
}

// add adds a number of events, or counts an element that is none.
func (c *Content) add(ts int64, number, element string) {
	n, err := parseCount(number)
	switch {
	case err != nil:
		c.skip(fmt.Errorf("%s: %w", element, err))
	case n > 0:
		c.Events = append(c.Events, Event{ts, n})
	}
}

// readList reads times. It reads them at once, because their positions change with each event.
func (s *Source) readList(ctx context.Context, c *Content) error {
	if err := s.pace.wait(ctx, 1); err != nil {
		return err
	}
	list, err := s.client.LRange(ctx, c.Key, 0, -1).Result()
	if err != nil {
		return err
	}
	for _, text := range list {
		ts, err := s.timeOf(text)
		if err != nil {
			c.skip(fmt.Errorf("element %w; --unit names the unit", err))
			continue
		}
		c.Events = append(c.Events, Event{ts, 1})
	}
	return nil
}

func (s *Source) timeOf(text string) (int64, error) {
	x, err := parseNumber(text)
	if err != nil {
		return 0, err
	}
	return milliseconds(x, s.opt.Unit)
}

// readHash reads sub-windows. A field may be returned twice.
func (s *Source) readHash(ctx context.Context, c *Content) error {
	seen := map[string]bool{}
	for cursor := uint64(0); ; {
		if err := s.pace.wait(ctx, 1); err != nil {
			return err
		}
		page, next, err := s.client.HScan(ctx, c.Key, cursor, "", pageSize).Result()
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(page); i += 2 {
			if field := page[i]; !seen[field] {
				seen[field] = true
				s.addSubWindow(c, field, page[i+1])
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (s *Source) addSubWindow(c *Content, field, value string) {
	element := fmt.Sprintf("field %.40q", field)
	ts, err := s.startOf(field)
	if err != nil {
		c.skip(fmt.Errorf("%s: %w", element, err))
		return
	}
	c.add(ts, value, element)
}

// startOf returns the time at which a sub-window starts: the number itself, or times the width.
func (s *Source) startOf(text string) (int64, error) {
	x, err := parseNumber(text)
	if err != nil {
		return 0, err
	}
	ts, err := milliseconds(x, s.opt.Unit)
	if err == nil && (unitOf(x) != "" || s.opt.Width == 0) {
		return ts, nil
	}
	if s.opt.Width == 0 {
		return 0, fmt.Errorf("%w; --width names the width if it is the index of a sub-window", err)
	}
	ms := x * float64(s.opt.Width.Milliseconds())
	if unitOf(ms) != "ms" {
		return 0, fmt.Errorf("%s is neither a time nor the index of a sub-window of %v", text,
			s.opt.Width)
	}
	return int64(ms), nil
}

// epoch2017 is where redis_rate begins to count seconds.
const epoch2017 = 1483228800

// readGCRA reads how much of a burst is in use.
func (s *Source) readGCRA(ctx context.Context, c *Content) error {
	if err := s.pace.wait(ctx, 2); err != nil {
		return err
	}
	pipe := s.client.Pipeline()
	value, clock := pipe.Get(ctx, c.Key), pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); errors.Is(err, redis.Nil) {
		return nil
	} else if err != nil {
		return err
	}
	x, err := parseNumber(value.Val())
	if err != nil {
		return contentErrorf("%v", err)
	}
	arrival := x / 1e3 // microseconds
	if c.Format == RedisRate {
		arrival = (x + epoch2017) * 1e6
	}
	if unitOf(arrival) != "us" {
		return contentErrorf("%s is not a time of %s", value.Val(), c.Format)
	}
	c.Events = inUse(time.UnixMicro(int64(arrival)), clock.Val(), s.opt.Rate, s.opt.Burst,
		s.opt.Period)
	return nil
}

// inUse returns events that a sliding window of the time in which a burst refills forgets exactly
// when GCRA lets the next ones pass. arrival is the theoretical arrival time.
func inUse(arrival, now time.Time, rate, burst int64, period time.Duration) (events []Event) {
	interval := float64(period) / float64(rate)
	refill := time.Duration(interval * float64(burst))
	for i := int64(0); i < burst; i++ {
		free := arrival.Add(-time.Duration(interval * float64(i)))
		if !free.After(now) {
			break
		}
		events = append(events, Event{free.Add(-refill).UnixMilli(), 1})
	}
	return events
}
