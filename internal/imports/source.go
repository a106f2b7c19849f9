package imports

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"twotier.dev/twotier/internal/redisurl"
)

// Format is the form in which a limiter keeps its state.
type Format string

// The formats of sources.
const (
	// Auto finds out whether a key is a ZSet, a List, a Hash or, if the pattern has the time of the
	// window, Fixed or Weighted.
	Auto Format = "auto"
	// ZSet is a sorted set with an element for each event, whose score is its time.
	ZSet Format = "zset"
	// List has an element for each event: its time.
	List Format = "list"
	// Hash has a field for each sub-window: its start, or its start divided by the width.
	Hash Format = "hash"
	// Fixed is a string with the number of events in a window, which starts at the time in the name
	// of the key, or ends when the key expires.
	Fixed Format = "fixed"
	// Weighted is Fixed of a limiter that estimates a sliding window: it keeps the window before
	// the present one, and weighs it by its part in the sliding window. Without a time in the name,
	// the key expires a window after the end of its own.
	Weighted Format = "weighted"
	// RedisCell is a string of redis-cell: the theoretical arrival time in unix nanoseconds.
	RedisCell Format = "redis-cell"
	// RedisRate is a string of go-redis/redis_rate: the theoretical arrival time in seconds since
	// 2017.
	RedisRate Format = "redis_rate"
)

// Formats lists the formats.
func Formats() []string {
	return []string{string(Auto), string(ZSet), string(List), string(Hash), string(Fixed),
		string(Weighted), string(RedisCell), string(RedisRate)}
}

// Loss describes the information that a format lacks for an exact import, or is "".
func (f Format) Loss() string {
	switch f {
	case Hash, Fixed:
		return "the times within a window: its events count from its start, so they leave when " +
			"the limiter would have forgotten them; fixed windows include refused requests"
	case Weighted:
		return "the times within a window: its events count spread evenly over the part that has " +
			"passed, as the limiter weighs them"
	case RedisCell, RedisRate:
		return "the times of events: GCRA keeps how much of its burst is in use, and those " +
			"events leave when it would have let the next ones pass"
	}
	return ""
}

// SourceOptions describe a source.
type SourceOptions struct {
	// URL is the address of Redis, see package redisurl.
	URL string
	// Pattern matches the keys of the limiter.
	Pattern *Pattern
	// Format is the form of their values.
	Format Format
	// Unit is the unit of times, one of Units. Default: auto.
	Unit string
	// Width is the width of the sub-windows of a Hash, or of the windows whose {index} is in the
	// name of a Fixed or Weighted key.
	Width time.Duration
	// Window is the length of the windows of Fixed and Weighted keys whose names have no {index}.
	Window time.Duration
	// Member matches the members of a ZSet, with {n} for the number of events that each stands for.
	// Default: none, and each is one event.
	Member *Pattern
	// Rate and Period are the number of events per time of a GCRA, and Burst how many it lets pass
	// at once.
	Rate, Burst int64
	Period      time.Duration
	// CommandsPerSecond bounds the commands to Redis; 0 for no bound.
	CommandsPerSecond int
	// Timeout bounds connecting, and each command.
	Timeout time.Duration
}

// Content is the state of one key of a source.
type Content struct {
	// Key is the name in Redis, and Values belong to the pattern's placeholders.
	Key    string
	Values map[string]string
	Format Format
	// Origin is the name of the source of the events: what has been counted of it is not counted
	// again. Empty means Key.
	Origin string
	// Events are in order of time, one for each millisecond.
	Events []Event
	// IsTotal is set if the times of Events are estimates, which differ between two imports: then
	// the number of events that have been counted is compared, from Since on.
	IsTotal bool
	Since   int64
	// Held is the number of events that count from now on, because their key outlives its window.
	Held int64
	// IsTime is set if the key holds a time and no events.
	IsTime bool
	// Unreadable is the number of elements that are no events, and Example describes one.
	Unreadable int64
	Example    string
	// Err is why the key can't be read, nil if it can.
	Err error
}

// Source reads the state of a limiter. It sends no command that writes.
type Source struct {
	opt    SourceOptions
	client redis.UniversalClient
	pace   pace
}

// NewSource returns a source that has not connected yet. The logger of the Redis client is silent
// from then on, because all errors are returned.
func NewSource(opt SourceOptions) (*Source, error) {
	where, err := redisurl.Parse(opt.URL)
	if err != nil {
		return nil, err
	}
	o := &redis.UniversalOptions{
		Addrs: where.Addresses, MasterName: where.Master,
		IsClusterMode: where.Kind == redisurl.Cluster, DB: where.Database,
		Username: where.Username, Password: where.Password,
		SentinelUsername: where.SentinelUsername, SentinelPassword: where.SentinelPassword,
		Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
		DialTimeout: opt.Timeout, ReadTimeout: opt.Timeout, WriteTimeout: opt.Timeout,
	}
	if where.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if where.Unix {
		o.Dialer = func(ctx context.Context, _, address string) (net.Conn, error) {
			return (&net.Dialer{Timeout: opt.Timeout}).DialContext(ctx, "unix", address)
		}
	}
	logging.Disable()
	return &Source{opt: opt, client: redis.NewUniversalClient(o),
		pace: pace{perSecond: opt.CommandsPerSecond}}, nil
}

// Close closes the connections.
func (s *Source) Close() error { return s.client.Close() }

// primaries returns the servers that hold keys.
func (s *Source) primaries(ctx context.Context) (list []*redis.Client, err error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []*redis.Client{s.client.(*redis.Client)}, nil
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, c)
		return nil
	})
	return list, err
}

// Size returns the number of keys of all kinds.
func (s *Source) Size(ctx context.Context) (n int64, err error) {
	servers, err := s.primaries(ctx)
	if err != nil {
		return 0, s.explain(err)
	}
	for _, c := range servers {
		if err := s.pace.wait(ctx, 1); err != nil {
			return 0, err
		}
		size, err := c.DBSize(ctx).Result()
		if err != nil {
			return 0, s.explain(err)
		}
		n += size
	}
	return n, nil
}

// explain adds the address to an error.
func (s *Source) explain(err error) error {
	return fmt.Errorf("redis at %s: %w", redisurl.Mask(s.opt.URL), err)
}

// scanCount is how many keys Redis looks at in one step.
const scanCount = 500

// Each reads all keys that match and calls fn with some of them at a time, and with the number of
// keys of all kinds that Redis has looked at since the last call, about.
func (s *Source) Each(ctx context.Context, fn func(list []Content, seen int64) error) error {
	servers, err := s.primaries(ctx)
	if err != nil {
		return s.explain(err)
	}
	for _, c := range servers {
		for cursor := uint64(0); ; {
			if err := s.pace.wait(ctx, 1); err != nil {
				return err
			}
			found, next, err := c.Scan(ctx, cursor, s.opt.Pattern.glob(), scanCount).Result()
			if err != nil {
				return s.explain(err)
			}
			list, err := s.read(ctx, found)
			if err != nil {
				return s.explain(err)
			}
			if err := fn(list, scanCount); err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// pace spreads commands over time.
type pace struct {
	perSecond int
	next      time.Time
}

// wait waits until n more commands may be sent.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.perSecond <= 0 {
		return ctx.Err()
	}
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	delay := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(n) * time.Second / time.Duration(p.perSecond))
	return wait(ctx, delay)
}

// readCounter reads the number of events in a window. It reads no events of a key that is gone, or
// that holds a time, as the timers of some limiters do.
func (s *Source) readCounter(ctx context.Context, c *Content) error {
	if err := s.pace.wait(ctx, 1); err != nil {
		return err
	}
	text, err := s.client.Get(ctx, c.Key).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := parseCount(text)
	switch {
	case errors.Is(err, errIsTime):
		c.IsTime = true
		return nil
	case err != nil:
		return contentErrorf("%v", err)
	case n == 0:
		return nil
	}
	if !s.opt.Pattern.hasTime() {
		return s.placeExpiring(ctx, c, n)
	}
	start, width, err := s.windowIn(c.Values)
	if err != nil {
		return err
	}
	c.IsTotal = true
	if s.opt.Format == Auto && width > 0 {
		if c.Format, err = s.keepsWindow(ctx, c.Key, start, width); err != nil {
			return err
		}
	}
	c.place(n, start, width)
	return nil
}

// place places events in the window that begins at start: at its start, because a fixed window
// forgets them at its end, or spread over the part of it that has passed.
func (c *Content) place(n, start int64, width time.Duration) {
	if c.Format == Fixed {
		c.Events = []Event{{start, n}}
		return
	}
	end := min(start+width.Milliseconds(), time.Now().UnixMilli())
	c.Events = spread(n, start, max(start, end))
}

// keepsWindow finds out whether a limiter with the time in the names of its keys weighs the window
// before the present one: then the key outlives its window by another one.
func (s *Source) keepsWindow(ctx context.Context, key string, start int64, width time.Duration) (
	Format, error) {
	if err := s.pace.wait(ctx, 1); err != nil {
		return "", err
	}
	left, err := s.client.PTTL(ctx, key).Result()
	if err != nil {
		return "", err
	}
	end, now := time.UnixMilli(start).Add(width), time.Now()
	if now.Before(end) && now.Add(left).Before(end.Add(width)) {
		return Fixed, nil
	}
	return Weighted, nil
}

// windowIn returns the start of the window whose time is in the name of a key, and its width, 0 if
// it is unknown.
func (s *Source) windowIn(values map[string]string) (start int64, width time.Duration, err error) {
	if text, ok := values[placeStart]; ok {
		start, err := s.timeOf(text)
		if err != nil {
			return 0, 0, contentErrorf("{start}: %v; --unit names the unit", err)
		}
		return start, max(s.opt.Window, s.opt.Width), nil
	}
	index, err := strconv.ParseInt(values[placeIndex], 10, 64)
	start = index * s.opt.Width.Milliseconds()
	if err != nil || unitOf(float64(start)) != "ms" {
		return 0, 0, contentErrorf("{index} is %s, no index of a window of %v; see --width",
			values[placeIndex], s.opt.Width)
	}
	return start, s.opt.Width, nil
}

// placeExpiring places events in a window that ends when its key expires, or one window before that
// if the limiter weighs it.
func (s *Source) placeExpiring(ctx context.Context, c *Content, n int64) error {
	end, err := s.expiry(ctx, c.Key)
	if err != nil || end.IsZero() {
		return err
	}
	c.IsTotal = true
	now := time.Now()
	if c.Format == Weighted {
		start := end.Add(-2 * s.opt.Window)
		if start.After(now.Add(ahead)) {
			return contentErrorf("expires in %v, and a weighted window of %v lives for twice as "+
				"long at most; see --window", end.Sub(now).Round(time.Second), s.opt.Window)
		}
		// Its name changes when the window has ended, and its end does not.
		c.Origin = fmt.Sprint(c.Values, start.UnixMilli())
		c.place(n, start.UnixMilli(), s.opt.Window)
		return nil
	}
	start := end.Add(-s.opt.Window)
	if start.After(now) {
		if start.After(now.Add(ahead)) {
			c.Held = n
		}
		start = now
	}
	// A previous window of the key has begun a window earlier, or before that.
	c.Since = start.Add(-s.opt.Window).UnixMilli()
	c.place(n, start.UnixMilli(), s.opt.Window)
	return nil
}

// expiry returns when a key expires, and the zero Time if it has expired.
func (s *Source) expiry(ctx context.Context, key string) (time.Time, error) {
	if err := s.pace.wait(ctx, 1); err != nil {
		return time.Time{}, err
	}
	end, err := s.client.PExpireTime(ctx, key).Result()
	switch {
	case err != nil && isFatal(ctx, err):
		return time.Time{}, err
	case err != nil:
		return time.Time{}, contentErrorf("its window ends when it expires, which Redis before "+
			"7.0 does not report exactly: %v", err)
	case end == -2:
		return time.Time{}, nil
	case end < 0:
		return time.Time{}, contentErrorf("has no time to live, so nobody knows when its window " +
			"ends; put {start} or {index} into --pattern if its name has the time")
	}
	return time.UnixMilli(end.Milliseconds()), nil
}
