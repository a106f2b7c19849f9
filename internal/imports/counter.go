package imports

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

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
