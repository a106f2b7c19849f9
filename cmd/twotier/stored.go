package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/redisstore"
)

const storedText = `Reads a key from Redis itself, whether a server runs or not, and changes nothing.
Lists its events, newest first, with the width of the bucket that they are in,
and counts its different values, which have a Hash of their own. It takes the
settings of serve about Redis, from flags, environment and file. The others that
it needs, such as the hash seed, are in Redis. With --json there is a line for
each Hash. Exit status 1 if Redis holds nothing of the key.`

const storedExamples = `twotier stored 18829340001 --ns sms
twotier stored alice --redis redis://10.0.0.5:6379 --json`

// localRedis is the Redis to ask if no setting names one.
const localRedis = "redis://127.0.0.1:6379"

func storedCommand(o cli.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stored KEY [--redis URL] [--ns NAMESPACE] [flags]", Long: storedText,
		Short: "show what Redis holds of a key", Example: storedExamples,
	}
	load := config.Bind(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		_, advanced := f.Annotations[config.AdvancedAnnotation]
		f.Hidden = f.Name != "config" && !strings.HasPrefix(f.Name, "redis") || advanced
	})
	cmd.Flags().Lookup("redis").Usage = "`URL` of Redis, as for serve (default " + localRedis + ")"
	ns := cmd.Flags().String("ns", "", "`NAMESPACE` of the key")
	asJSON := cmd.Flags().Bool("json", false, "print the content as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := cli.OneKey(args)
		if err != nil {
			return err
		}
		cfg, err := load(o.Environ)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		cfg.Redis = cmp.Or(cfg.Redis, localRedis)
		store, err := unopenedStore(cfg)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), doctorTimeout)
		defer cancel()
		list, err := store.Stored(ctx, []byte(*ns), []byte(key))
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("the key %q of namespace %q with prefix %q is not in Redis", key,
				cmp.Or(*ns, twotier.DefaultNamespace), cfg.RedisPrefix)
		}
		for _, st := range list {
			err = errors.Join(err, printStored(o.Stdout, st, *asJSON))
		}
		return errors.Join(err, store.Close())
	}
	return cmd
}

// printStored prints the content of a Hash.
func printStored(w io.Writer, st *redisstore.Stored, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(st)
	}
	moment := func(ms int64) string {
		return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	about := "never expires"
	if st.TTL >= 0 {
		about = "expires in " + twotier.FormatMillis(st.TTL/1000*1000)
	}
	if st.Version != "" {
		about += fmt.Sprintf(", version %q of pure-Redis mode", st.Version)
	}
	for _, name := range st.Unknown {
		about += fmt.Sprintf(", unknown field %q", name)
	}
	fmt.Fprintf(w, "%q %s\n", st.Hash, about)
	if st.Values > 0 {
		kept := "values"
		if st.Sampled {
			kept = "values of a sample"
		}
		fmt.Fprintf(w, "%d different %s, last seen from %s to %s\n", st.Values, kept,
			moment(st.Oldest), moment(st.Newest))
	}
	if len(st.Cells) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tWIDTH\tEVENTS")
	for _, c := range st.Cells {
		fmt.Fprintf(t, "%s\t%s\t%d\n", moment(c.Start), twotier.FormatMillis(c.Width), c.N)
	}
	fmt.Fprintf(t, "total\t\t%d\n", st.Events)
	return t.Flush()
}
