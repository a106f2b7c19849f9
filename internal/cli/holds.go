package cli

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
)

func settleSpec() spec {
	return spec{
		name: "settle", args: "ID NUMBER", summary: "correct what a hold has counted",
		details: "Makes what a hold has counted of each of its keys NUMBER events, at the time " +
			"of the hold, even if they exceed a limit, and up to ten minutes after its end. 0 " +
			"releases the hold. To settle again changes nothing.",
		examples: "twotier acquire team:7 -n 800 --limit 1000/1m --hold 90s\n" +
			"twotier settle \"$id\" 1234",
		bind: func(*pflag.FlagSet) runner {
			return func(ctx context.Context, s *session, args []string) error {
				id, text, err := holdArgs(args, "a number of events")
				if err != nil {
					return err
				}
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil || n < 0 {
					return usagef("%q is not a number of events", text)
				}
				return s.settle(ctx, id, n)
			}
		},
	}
}

// holdArgs returns the id of a hold and the argument that follows it.
func holdArgs(args []string, second string) (id, value string, err error) {
	if len(args) != 2 {
		return "", "", usagef("want the id of a hold and %s", second)
	}
	return args[0], args[1], nil
}

func (s *session) settle(ctx context.Context, id string, n int64) error {
	var answer struct {
		Repeated bool
		Late     bool
		Over     []string
	}
	err := s.call(ctx, http.MethodPost, "/v1/settle", nil,
		map[string]any{"hold": id, "n": n}, &answer)
	if err != nil || s.json {
		return err
	}
	did := fmt.Sprintf("settled with %d", n)
	switch {
	case answer.Repeated:
		did = "settled before, nothing was changed"
	case answer.Late:
		did += ", after the end of the hold"
	}
	if len(answer.Over) > 0 {
		did += ", over " + strings.Join(answer.Over, " and ")
	}
	return s.printf("%s\n", did)
}

func renewSpec() spec {
	return spec{
		name: "renew", args: "ID DURATION", summary: "move the end of a hold",
		details: "Moves the end of a hold to DURATION from now, at most 24 hours after it began, " +
			"and prints the id that takes the place of the old one.",
		examples: "id=$(twotier renew \"$id\" 5m)",
		bind: func(*pflag.FlagSet) runner {
			return func(ctx context.Context, s *session, args []string) error {
				id, lasts, err := holdArgs(args, "a duration")
				if err != nil {
					return err
				}
				if err := checkWindow(lasts); err != nil {
					return usagef("%w", err)
				}
				var answer struct{ Hold string }
				err = s.call(ctx, http.MethodPost, "/v1/renew", nil,
					map[string]string{"hold": id, "for": lasts}, &answer)
				if err != nil || s.json {
					return err
				}
				return s.printf("%s\n", answer.Hold)
			}
		},
	}
}

func holdsSpec() spec {
	return spec{
		name: "holds", args: "KEY [flags]", summary: "read how many holds of a key are open",
		details: "Of the holds that were made under a limit on concurrent ones, and when the " +
			"first of them ends unless it is settled or renewed.",
		examples: "twotier acquire user:bob --concurrent 5 --hold 30s\ntwotier holds user:bob",
		bind: func(fs *pflag.FlagSet) runner {
			ns := fs.String("ns", "", "`NAMESPACE` of the key")
			return keyRunner(func(ctx context.Context, s *session, key string) error {
				var answer struct {
					Key  string
					Open int64
					Next int64 `json:"next_end_ms"`
					origin
				}
				err := s.call(ctx, http.MethodGet, "/v1/holds", queryOf("ns", *ns, "key", key), nil,
					&answer)
				if err != nil || s.json {
					return err
				}
				next := ""
				if answer.Next > 0 {
					next = ", the next ends in " + twotier.FormatMillis(answer.Next)
				}
				return s.printf("%s: %d open%s (%s)\n", quoteUnprintable(answer.Key), answer.Open,
					next, answer.origin)
			})
		},
	}
}

// describeHold describes the hold of an answer.
func describeHold(id string, until int64) string {
	return fmt.Sprintf("hold %s until %s\n", id, time.UnixMilli(until).UTC().Format(time.RFC3339))
}
