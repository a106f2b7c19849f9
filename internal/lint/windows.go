package lint

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/leaparray"
)

// Settings returns the warnings about settings and the variables they were read from.
func Settings(cfg *config.Config) []warning.Warning {
	list := slices.Concat(lintVariables(cfg.Variables), lintNoEffect(cfg), lintShadow(cfg),
		lintJoin(cfg))
	if at := cfg.Where("trusted-proxies"); at != "" {
		for _, network := range cfg.TrustedProxies {
			if network.Bits() == 0 {
				list = append(list, warning.Warning{Code: warning.TrustsEverybody, At: at,
					Reason: network.String() + " is every address: each client can choose the " +
						"address that it is counted under in X-Forwarded-For",
					Instead: "the networks of the proxies alone"})
			}
		}
	}
	return list
}

// lintShadow warns that nothing is refused: once for all namespaces, or else once for each place
// that puts some into shadow.
func lintShadow(cfg *config.Config) (list []warning.Warning) {
	warn := func(at, which string) {
		list = append(list, warning.Warning{Code: warning.RefusesNothing, At: at,
			Reason:  which + " are judged and reported, and none is refused",
			Instead: "no shadow, once the reports show the intended refusals"})
	}
	if cfg.Shadow {
		warn(cfg.Where("shadow"), "all requests")
		return list
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Namespaces)) {
		if at := cfg.WhereShadow(name); cfg.Namespaces[name].Shadow && !seen[at] {
			seen[at] = true
			which := "requests in namespace " + name
			if name == config.DefaultNamespace {
				which += ", and in all that inherit from it,"
			}
			warn(at, which)
		}
	}
	return list
}

// lintJoin warns about a node that is to join nobody but itself.
func lintJoin(cfg *config.Config) []warning.Warning {
	for _, address := range cfg.Join {
		if address != cfg.Gossip && address != cfg.GossipAdvertise {
			return nil
		}
	}
	if len(cfg.Join) == 0 {
		return nil
	}
	return []warning.Warning{{Code: warning.JoinsItself, At: cfg.Where("join"),
		Reason: "it names only this node, so a restart while Redis does not answer makes a " +
			"cluster of one beside the others until they find it: both admit a whole limit",
		Instead: "the gossip addresses of all nodes, the same list on each"}}
}

// ofCommands are the variables that commands other than serve read.
var ofCommands = [...]string{"TWOTIER_SERVER", "TWOTIER_TOKEN", "TWOTIER_TOKEN_FILE", "TWOTIER_CA",
	"TWOTIER_CERT", "TWOTIER_KEY"}

// ofOrchestrators matches the variables that Kubernetes adds for services whose names begin with
// twotier.
var ofOrchestrators = regexp.MustCompile(`^TWOTIER_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|` +
	`PORT|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)$`)

// lintVariables warns about TWOTIER_* variables that nothing reads. Their values are not shown.
func lintVariables(names []string) (list []warning.Warning) {
	known := append(config.SettingVariables(), ofCommands[:]...)
	for _, name := range names {
		if slices.Contains(known, name) || ofOrchestrators.MatchString(name) {
			continue
		}
		list = append(list, warning.Warning{Code: warning.UnknownVariable, At: name,
			Reason:  "no setting has this name, so the variable does nothing",
			Instead: "a name that twotier serve --help lists, with TWOTIER_ in front"})
	}
	return list
}

// need describes the settings that other settings need to have an effect.
type need struct {
	settings []string
	met      func(*config.Config) bool
	reason   string
	instead  string
}

// needs lists the settings that do nothing without others. Combinations that can't work at all are
// errors of package config.
func needs() []need {
	return []need{
		{[]string{"decisions-sample"}, func(c *config.Config) bool { return c.Decisions != "" },
			"no decisions are written", "--decisions FILE as well"},
		{[]string{"flush-interval", "max-lag", "on-cold", "redis-timeout"},
			func(c *config.Config) bool { return c.Redis != "" },
			"without --redis nothing is flushed or loaded", "--redis URL as well"},
		{[]string{"hot-rate"}, func(c *config.Config) bool { return c.Gossip != "" },
			"a node without a cluster borrows from nobody", "--gossip HOST:PORT as well"},
		{[]string{"flush-interval", "max-lag", "on-cold", "hot-rate"},
			func(c *config.Config) bool { return c.Mode != "redis" },
			"with --mode=redis every request counts in Redis and fails if Redis does: nothing " +
				"waits in memory", "--mode=two-tier, or leave it out"},
		{[]string{"ack-replicas"}, func(c *config.Config) bool { return c.Redis != "" },
			"without --redis there are no replicas", "--redis URL as well"},
	}
}

// lintNoEffect warns about explicit settings that do nothing, once for each.
func lintNoEffect(cfg *config.Config) (list []warning.Warning) {
	warned := map[string]bool{}
	for _, n := range needs() {
		if n.met(cfg) {
			continue
		}
		for _, name := range n.settings {
			at := cfg.Where(name)
			if at == "" || warned[name] {
				continue
			}
			warned[name] = true
			list = append(list, warning.Warning{Code: warning.NoEffect, At: at,
				Reason: "--" + name + " has no effect: " + n.reason, Instead: n.instead})
		}
	}
	return list
}

// FewBuckets is the number of buckets below which a window is coarse. An event counts until its
// bucket has left the window, at most one bucket too long: of a window of n buckets, steady traffic
// above n/(n+1) of the limit is refused.
const FewBuckets = 10

// oldestBucketWidth returns the width of the bucket that holds the oldest events of a window, once
// they no longer keep their millisecond. It returns 0 for windows that no level covers; those are
// refused elsewhere.
func oldestBucketWidth(ladder *leaparray.Ladder, window int64) (width int64) {
	for level, l := range ladder.Levels() {
		if l.Span().Milliseconds() >= window-1 {
			return ladder.Width(level)
		}
	}
	return 0
}

// IsCoarse reports whether a limit of most events is decided by fewer than [FewBuckets] buckets in
// a namespace; "" is the default one. A limit of at most Ladder.ExactEvents events is decided by
// their milliseconds, whatever the window.
func (l Ladders) IsCoarse(namespace string, most, window int64) bool {
	ladder := l.Of(namespace)
	return most > int64(ladder.ExactEvents()) &&
		window < FewBuckets*oldestBucketWidth(ladder, window)
}

// lintCoarseWindows warns about limits on events over windows of few buckets.
func lintCoarseWindows(s *rules.Source, ladders Ladders) (list []warning.Warning) {
	seen := map[string]bool{}
	for _, l := range s.Limits {
		if l.Distinct || l.Max == 0 || !ladders.IsCoarse(l.Namespace, l.Max, l.Longest()) ||
			seen[l.At] {
			continue
		}
		seen[l.At] = true
		width := oldestBucketWidth(ladders.Of(l.Namespace), l.Longest())
		list = append(list, warning.Warning{Code: warning.CoarseWindow, At: l.At,
			Reason: fmt.Sprintf("%s is decided by buckets of %s: an event counts for up to %[2]s "+
				"too long, so steady traffic above %d %% of the limit is refused in part",
				formatLimit(l.RuleLimit), twotier.FormatMillis(width),
				100*l.Longest()/(l.Longest()+width)),
			Instead: remedy(ladders, l, width)})
	}
	return list
}

// remedy returns the settings or the window to use in place of a coarse one.
func remedy(ladders Ladders, l rules.PlacedLimit, width int64) string {
	namespace, ladder := cmp.Or(l.Namespace, config.DefaultNamespace), ladders.Of(l.Namespace)
	var ways []string
	if l.Max <= leaparray.MaxExact {
		ways = append(ways, fmt.Sprintf("namespaces: {%s: {exact: %d}}", namespace, l.Max))
	} else if finer := finerLadder(ladder, l.Longest()); finer != nil {
		ways = append(ways, fmt.Sprintf("namespaces: {%s: {ladder: [%s]}}", namespace, finer))
	}
	if FewBuckets*width <= ladder.Span() {
		ways = append(ways, "a window of at least "+twotier.FormatMillis(FewBuckets*width))
	}
	if len(ways) == 0 {
		return fmt.Sprintf("a ladder of namespace %s with finer buckets", namespace)
	}
	return strings.Join(ways, ", or ")
}

// widths are readable bucket widths, widest first.
var widths = [...]time.Duration{24 * time.Hour, 12 * time.Hour, 6 * time.Hour, 2 * time.Hour,
	time.Hour, 30 * time.Minute, 15 * time.Minute, 10 * time.Minute, 5 * time.Minute,
	2 * time.Minute, time.Minute, 30 * time.Second, 15 * time.Second, 10 * time.Second,
	5 * time.Second, 2 * time.Second, time.Second, 500 * time.Millisecond,
	200 * time.Millisecond, 100 * time.Millisecond, 50 * time.Millisecond}

// finerLadder returns a ladder with one more level that gives the window ten buckets or more, or
// nil if there can be none. It leaves out the levels that the new one covers.
func finerLadder(ladder *leaparray.Ladder, window int64) *leaparray.Ladder {
	most := time.Duration(window/FewBuckets) * time.Millisecond
	for _, width := range widths {
		if width <= most {
			if finer := withLevel(ladder, width, window); finer != nil {
				return finer
			}
		}
	}
	for _, l := range ladder.Levels() { // parts of its widths fit in if nothing else does
		for parts := time.Duration(1); l.Width/parts >= leaparray.MinWidth; parts++ {
			if width := l.Width / parts; width <= most {
				if finer := withLevel(ladder, width, window); finer != nil {
					return finer
				}
			}
		}
	}
	return nil
}

// withLevel returns a ladder with a level of this width that covers a window, or nil if the width
// does not fit in.
func withLevel(ladder *leaparray.Ladder, width time.Duration, window int64) *leaparray.Ladder {
	span := time.Duration(window) * time.Millisecond
	level := leaparray.Level{Width: width, Count: int((span + width - 1) / width)}
	levels := slices.DeleteFunc(ladder.Levels(), func(l leaparray.Level) bool {
		return l.Width == width || l.Width > width && l.Span() <= level.Span()
	})
	at := slices.IndexFunc(levels, func(l leaparray.Level) bool { return l.Width > width })
	if at < 0 {
		at = len(levels)
	}
	finer, err := leaparray.NewLadder(ladder.ExactEvents(), slices.Insert(levels, at, level)...)
	if err != nil {
		return nil
	}
	return finer
}
