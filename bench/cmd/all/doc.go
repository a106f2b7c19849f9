// Command all runs every benchmark in order, one at a time, and writes results. With -quick it takes about a minute, writes
// to results/quick, and shows that everything works rather than how fast it is.
package main
