package lint

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

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
	namespace := cmp.Or(l.Namespace, config.DefaultNamespace)
	way := fmt.Sprintf("a ladder of namespace %s with finer buckets", namespace)
	if l.Max <= leaparray.MaxExact {
		way = fmt.Sprintf("namespaces: {%s: {exact: %d}}", namespace, l.Max)
	}
	if FewBuckets*width <= ladders.Of(l.Namespace).Span() {
		way += ", or a window of at least " + twotier.FormatMillis(FewBuckets*width)
	}
	return way
}
