package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/pflag"
)

// modeTimeout is the default --timeout of mode: a change waits for all nodes to flush.
const modeTimeout = 15 * time.Second

func modeSpec() spec {
	return spec{
		name: "mode", args: "[two-tier|redis] [flags]",
		summary: "show how the cluster counts, or change it while it runs",
		details: "two-tier: memory answers, Redis remembers. redis: one script in Redis per " +
			"request. Without an argument it shows the current mode. A change applies to all " +
			"nodes and loses no count: requests wait until every node has flushed what it " +
			"counted to Redis. If a node can't, nothing changes. It takes the --admin-token of " +
			"the servers, or a token with the role admin. Where they have --admin, name that " +
			"address: --server http://127.0.0.1:8090.",
		examples: "twotier mode\n" +
			"TWOTIER_ADMIN_TOKEN=... twotier mode redis\n" +
			"TWOTIER_ADMIN_TOKEN=... twotier mode two-tier --server http://10.0.0.7:8080",
		timeout: modeTimeout,
		valid:   []string{"two-tier", "redis"},
		bind: func(fs *pflag.FlagSet) runner {
			token := fs.String("admin-token", "",
				"`TEXT` that the servers were started with (default $TWOTIER_ADMIN_TOKEN)")
			return func(ctx context.Context, s *session, args []string) error {
				switch {
				case len(args) == 0:
					return s.showMode(ctx)
				case len(args) > 1:
					return usagef("unexpected argument %q", args[1])
				case args[0] != "two-tier" && args[0] != "redis":
					return usagef("%q is neither two-tier nor redis", args[0])
				}
				s.client.token = cmp.Or(*token, s.getenv("TWOTIER_ADMIN_TOKEN"), s.client.token)
				if s.client.token == "" {
					return usagef("--admin-token: missing; better, set TWOTIER_ADMIN_TOKEN, or " +
						"TWOTIER_TOKEN to one with the role admin")
				}
				return s.setMode(ctx, args[0])
			}
		},
	}
}

func (s *session) showMode(ctx context.Context) error {
	var v clusterView
	if err := s.call(ctx, http.MethodGet, "/v1/cluster", nil, nil, &v); err != nil || s.json {
		return err
	}
	return s.printf("%s\n", v.Mode)
}

func (s *session) setMode(ctx context.Context, mode string) error {
	s.client.unknown = "it may or may not have changed; twotier mode tells"
	var answer struct{ Mode string }
	err := s.call(ctx, http.MethodPost, "/v1/admin/mode", nil, map[string]string{"mode": mode},
		&answer)
	if p, ok := errors.AsType[*Problem](err); ok && p.Status == http.StatusUnauthorized {
		return fmt.Errorf("%s does not know this token: it is neither its --admin-token nor "+
			"one of its --tokens", s.client.address())
	}
	if err != nil || s.json {
		return err
	}
	return s.printf("all nodes count in %s mode\n", answer.Mode)
}
