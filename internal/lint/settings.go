package lint

import (
	"maps"
	"regexp"
	"slices"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/warning"
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
