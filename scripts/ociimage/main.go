package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

// run writes the image that the arguments describe.
func run(args []string, w io.Writer) error {
	flags := flag.NewFlagSet("ociimage", flag.ContinueOnError)
	name := flags.String("name", "", "the name and the tag, such as twotier:1.2.3")
	created := flags.Int64("created", 0, "the time of the image, in seconds since 1970")
	certificates := flags.String("certificates", "", "a PEM file of certificate authorities")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !strings.Contains(*name, ":") {
		return fmt.Errorf("-name %q has no tag: give one such as twotier:1.2.3", *name)
	}
	if flags.NArg() == 0 {
		return errors.New("no program: give one such as amd64=bin/twotier")
	}
	roots, err := os.ReadFile(*certificates)
	if err != nil {
		return fmt.Errorf("-certificates: %w", err)
	}
	l := layout{name: *name, created: time.Unix(*created, 0).UTC()}
	for _, arg := range flags.Args() {
		arch, path, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%s: give an architecture, = and a program", arg)
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := l.add(arch, program, roots); err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
	}
	b := bufio.NewWriter(w)
	if err := l.write(b); err != nil {
		return err
	}
	return b.Flush()
}
