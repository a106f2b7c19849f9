package mirror

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/request"
)

// Verdict is one decision of the old limiter.
type Verdict struct {
	// Checks are the keys that it decided about, at least one, all or nothing.
	Checks []client.Check
	// At is the time of the decision in unix milliseconds.
	At      int64
	Allowed bool
}

// Size returns the bytes that the verdict occupies, approximately.
func (v *Verdict) Size() int64 {
	const fixed, perCheck, perLimit = 64, 160, 40
	n := fixed
	for i := range v.Checks {
		c := &v.Checks[i]
		n += perCheck + len(c.Namespace) + len(c.Key) + perLimit*(len(c.Limits)+len(c.Rules))
		for _, name := range c.Rules {
			n += len(name)
		}
	}
	return int64(n)
}

// verdictJSON is a verdict as the application sends it: an acquire with the old limiter's answer.
type verdictJSON struct {
	checkJSON
	Checks  []checkJSON `json:"checks"`
	TS      int64       `json:"ts"`
	Allowed *bool       `json:"allowed"`
}

type checkJSON struct {
	NS     string      `json:"ns"`
	Key    string      `json:"key"`
	N      *int64      `json:"n"`
	Limits []limitJSON `json:"limits"`
	Rules  []string    `json:"rules"`
}

type limitJSON struct {
	Window string `json:"window"`
	Max    int64  `json:"max"`
}

// Decode reads verdicts: JSON objects, usually one in each line. now is the time of verdicts that
// have none. Either all are valid, or the error names the field and the remedy.
func Decode(body []byte, now time.Time) (list []Verdict, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	for {
		var one verdictJSON
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		v := Verdict{At: now.UnixMilli()}
		if err == nil {
			err = v.read(&one)
		}
		if err != nil {
			return nil, fmt.Errorf("verdict %d: %s", len(list)+1,
				strings.TrimPrefix(err.Error(), "json: "))
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, errors.New(`no verdict; want {"key":"...","rules":["..."],"allowed":true}`)
	}
	return list, nil
}

func (v *Verdict) read(from *verdictJSON) error {
	switch {
	case from.Allowed == nil:
		return errors.New("allowed: missing; want the verdict of the old limiter, true or false")
	case from.TS < 0:
		return fmt.Errorf("ts: %d is not a time in unix milliseconds", from.TS)
	case from.TS > 0:
		v.At = from.TS
	}
	v.Allowed = *from.Allowed
	if len(from.Checks) == 0 {
		from.Checks = []checkJSON{from.checkJSON}
	} else if !from.checkJSON.isEmpty() {
		return errors.New("checks: want either these or key, ns, n, limits and rules")
	}
	if len(from.Checks) > request.MaxChecks {
		return fmt.Errorf("checks: %d of them, want at most %d", len(from.Checks),
			request.MaxChecks)
	}
	v.Checks = make([]client.Check, len(from.Checks))
	for i := range from.Checks {
		if err := from.Checks[i].readTo(&v.Checks[i]); err != nil {
			if len(from.Checks) > 1 {
				err = fmt.Errorf("checks[%d].%w", i, err)
			}
			return err
		}
	}
	return nil
}

func (c *checkJSON) isEmpty() bool {
	return c.NS == "" && c.Key == "" && c.N == nil && len(c.Limits)+len(c.Rules) == 0
}

func (c *checkJSON) readTo(to *client.Check) error {
	if err := c.checkBounds(); err != nil {
		return err
	}
	*to = client.Check{Namespace: c.NS, Key: client.SafeKey(c.Key), N: 1, Rules: c.Rules}
	if c.N != nil {
		to.N, to.Peek = *c.N, *c.N == 0
	}
	if to.N < 0 || to.N > math.MaxInt32 {
		return fmt.Errorf("n: %d is not a number from 0 to %d", to.N, math.MaxInt32)
	}
	for i, l := range c.Limits {
		limit, err := ParseLimit(l.Window, l.Max)
		if err != nil {
			return fmt.Errorf("limits[%d].%w", i, err)
		}
		to.Limits = append(to.Limits, limit)
	}
	return nil
}

// checkBounds refuses fields that a server refuses, so that their size is bounded.
func (c *checkJSON) checkBounds() error {
	switch {
	case c.Key == "":
		return errors.New("key: missing or empty")
	case c.NS != "" && !request.ValidNS([]byte(c.NS)):
		return fmt.Errorf("ns: %q, %s", request.Clip([]byte(c.NS)), request.WantNS)
	case len(c.Limits) > request.MaxLimits:
		return fmt.Errorf("limits: %d of them, want at most %d", len(c.Limits), request.MaxLimits)
	case len(c.Rules) > request.MaxLimits:
		return fmt.Errorf("rules: %d of them, want at most %d", len(c.Rules), request.MaxLimits)
	}
	for i, name := range c.Rules {
		if len(name) > request.MaxKeyBytes {
			return fmt.Errorf("rules[%d]: %d bytes, want at most %d", i, len(name),
				request.MaxKeyBytes)
		}
	}
	return nil
}

// ParseLimit returns a limit on a window, which is a duration such as 90s or a calendar period such
// as month@Europe/Lisbon.
func ParseLimit(window string, most int64) (client.Limit, error) {
	l := client.Limit{Max: most}
	if most < 0 {
		return l, fmt.Errorf("max: %d is less than 0", most)
	}
	var err error
	if window != "" && window[0] >= 'a' {
		l.Period = window
		_, err = twotier.ParsePeriod(window)
	} else if l.Window, err = config.ParseDuration(window); err == nil &&
		(l.Window <= 0 || l.Window%time.Millisecond != 0) {
		err = errors.New("want whole milliseconds, at least 1")
	}
	if err != nil {
		return l, fmt.Errorf("window: %q is not a window, such as 90s, 24h or month: %w",
			request.Clip([]byte(window)), err)
	}
	return l, nil
}
