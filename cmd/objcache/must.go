package main

// must is for wiring that only a programming error breaks.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
