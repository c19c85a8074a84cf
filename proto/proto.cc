namespace coracle {}
